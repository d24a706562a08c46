"""Which files a remote URI means, by the rules of local ones (see :mod:`streamfeed.storage.listing`).

Nothing here takes a failure for an answer: only a store's own "not found" means that something is not there.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from streamfeed.errors import SourceError
from streamfeed.storage.client import Entry, Limits, Port
from streamfeed.storage.faults import Kind
from streamfeed.storage.listing import MAGIC, expanded, nothing_in
from streamfeed.storage.retry import GaveUpError
from streamfeed.storage.urls import Place, is_remote, place_of, redact
from streamfeed.storage.walk import HIDDEN, Found, is_marker, matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamfeed.storage.edge import RemoteEdge

__all__ = ["RemoteTree"]

T = TypeVar("T")

_AT_ONCE = 16
"""Questions about single files that are asked at a time."""


class RemoteTree:
    """Lists through one source's edge."""

    def __init__(self, edge: RemoteEdge) -> None:
        self._edge = edge
        self._known: dict[str, Entry | None] = {}

    def prepare(self, uris: Iterable[str]) -> None:
        """Ask about those of ``uris`` that are single remote files or folders, many at a time."""
        uris = [uri for uri in uris if is_remote(uri) and not _is_pattern(place_of(uri)) and uri not in self._known]
        if len(uris) > 1:
            with ThreadPoolExecutor(min(_AT_ONCE, len(uris)), thread_name_prefix="listing") as pool:
                self._known.update(zip(uris, pool.map(self._ask, uris), strict=True))

    def look(self, url: str) -> Entry | None:
        """Return what is at ``url``, None where the store says that nothing is."""
        if url not in self._known:
            self._known[url] = self._ask(url)
        return self._known[url]

    def _ask(self, url: str) -> Entry | None:
        return self.ask(url, lambda port, path, limits: port.info(path, limits))

    def ask(self, url: str, question: Callable[[Port, str, Limits], T]) -> T | None:
        """Return the store's answer, None for "not found"; raises :class:`SourceError` for a failure."""
        try:
            return self._edge.ask(url, question)
        except GaveUpError as gave:
            if gave.fault.kind is Kind.MISSING:
                return None
            failure = SourceError(f"{redact(url)}: cannot be listed: {gave}")
        raise failure

    def one(self, uri: str) -> tuple[list[Found], int]:
        """Return the files that ``uri`` means and how many were passed over; one named itself has no name yet.

        Raises :class:`SourceError` where it means nothing, or the store failed.
        """
        place = place_of(uri)
        if _is_pattern(place):
            return self._pattern(uri, place)
        entry = None if place.path.endswith("/") else self.look(uri)
        if entry is not None and not entry.folder:
            return [Found(uri, "", entry.size, entry.version)], 0
        if entry is None and not place.path.endswith("/"):
            raise SourceError(f"{redact(uri)}: there is no such file or folder")
        folder = _Folder(self, place._replace(path=place.path.rstrip("/") + "/"), "")
        hits, ignored = folder.find("", ("**",))
        if not hits:
            raise SourceError(nothing_in(uri, "the folder holds", ignored))
        return self._sized(hits), ignored

    def _pattern(self, uri: str, place: Place) -> tuple[list[Found], int]:
        at = min(i for i, char in enumerate(place.path) if char in MAGIC or char == "{")
        cut = place.path.rfind("/", 0, at) + 1
        folder = _Folder(self, place._replace(path=place.path[:cut]), place.path[cut:at])
        rest = place.path[cut:]
        literal = folder.file(rest)
        if literal is not None:
            return [literal._replace(name="")], 0
        hits: list[Found] = []
        ignored = 0
        parts = list(expanded(rest, redact(uri)))
        if not folder.flat:
            self.prepare([folder.url(part) for part in parts if not MAGIC & set(part)])
        for part in parts:
            more, passed = folder.part(part, uri)
            hits += more
            ignored += passed
        if not hits:
            raise SourceError(nothing_in(uri, "the pattern matches", ignored))
        return self._sized(hits), ignored

    def _sized(self, hits: list[Found]) -> list[Found]:
        """Return ``hits`` with the sizes that an index page did not say."""
        if all(hit.size >= 0 for hit in hits):
            return hits
        self.prepare(hit.path for hit in hits if hit.size < 0)
        return [self._asked(hit) if hit.size < 0 else hit for hit in hits]

    def _asked(self, hit: Found) -> Found:
        entry = self.look(hit.path)
        if entry is None:
            raise SourceError(f"{redact(hit.path)}: is in the listing and not there")
        return hit._replace(size=entry.size, version=entry.version)


def _is_pattern(place: Place) -> bool:
    return bool((MAGIC | {"{"}) & set(place.path))


class _Folder:
    """Everything below one folder: from one flat listing where the store has that, else folder by folder."""

    def __init__(self, tree: RemoteTree, place: Place, stem: str) -> None:
        self._tree = tree
        self._place = place
        self._stem = stem
        self._levels: dict[str, dict[str, Entry]] = {}
        self.flat = False
        self._load()

    def url(self, name: str) -> str:
        """Return the URL of what is called ``name`` below this folder."""
        return self._place.at(self._place.path + name)

    def _load(self) -> None:
        token = ""
        while True:
            answer = self._tree.ask(self.url(""), self._page(token))
            if answer is None and token:
                raise SourceError(f"{redact(self.url(''))}: cannot be listed: it was removed while it was listed")
            self.flat = answer != ()
            if not answer:
                return
            base, entries, token = answer
            for entry in entries:
                self._put(self._below(base, entry.path), entry)
            if not token:
                return

    def _page(self, token: str) -> Callable[[Port, str, Limits], tuple[str, list[Entry], str] | tuple[()]]:
        """Return the question for a part of the tree; the answer is empty where folders are listed one by one."""

        def ask(port: Port, path: str, limits: Limits) -> tuple[str, list[Entry], str] | tuple[()]:
            found = port.tree(path, self._stem, token, limits)
            return () if found is None else (path, *found)

        return ask

    def _put(self, name: str, entry: Entry) -> None:
        """Note a file, and the folders that it is in; a folder and a file may have one name."""
        if name.startswith("/"):  # in a store of flat keys a//b is another file than a/b
            cause = "is in a folder without a name; list a pattern that leaves it out"
            raise SourceError(f"{redact(self.url(name))}: {cause}, or name single files")
        folder, _, last = name.rpartition("/")
        self._levels.setdefault(folder, {})[last] = entry
        while folder:
            above, _, last = folder.rpartition("/")
            level = self._levels.setdefault(above, {})
            if last + "/" in level:
                return
            level[last + "/"] = Entry(folder, 0, "", folder=True)
            folder = above

    def _below(self, base: str, path: str) -> str:
        base = base.removesuffix(self._place.tail).rstrip("/")
        if base and not path.startswith(base + "/"):
            raise SourceError(f"{redact(self.url(''))}: the listing names a file that is not in the folder")
        return path[len(base) :].removeprefix("/")

    def _level(self, folder: str) -> dict[str, Entry]:
        """Return what is right below ``folder`` (a name below this one); folders' names end with a slash."""
        if self.flat or folder in self._levels:
            return self._levels.get(folder, {})
        url = self.url(folder + "/" if folder else "")
        answer = self._tree.ask(url, lambda port, path, limits: (path, port.folder(path, limits)))
        if answer is None:
            raise SourceError(f"{redact(url)}: the folder cannot be listed: there is none")
        level: dict[str, Entry] = {}
        for entry in answer[1]:
            name = self._below(answer[0], entry.path).strip("/")
            if name and name[0] not in "?#" and "/" not in name:
                level[name + "/" if entry.folder else name] = entry
        self._levels[folder] = level
        return level

    def file(self, name: str) -> Found | None:
        """Return the file called just so, None where there is none."""
        if self.flat:
            folder, _, last = name.rpartition("/")
            entry = self._level(folder).get(last)
        else:
            entry = self._tree.look(self.url(name))
        if entry is None or entry.folder:
            return None
        return Found(self.url(name), name, entry.size, entry.version)

    def part(self, name: str, uri: str) -> tuple[list[Found], int]:
        """Return the files of one expansion of a pattern."""
        direct = self.file(name)
        if direct is not None:
            return [direct], 0
        if MAGIC & set(name):
            base = name[: name.rfind("/", 0, min(i for i, char in enumerate(name) if char in MAGIC)) + 1]
            parts = tuple(part for part in name[len(base) :].split("/") if part not in {"", "."})
            return self.find(base.strip("/"), parts)
        hits, ignored = self.find(name.strip("/"), ("**",)) if self._is_folder(name) else ([], 0)
        if not hits and not ignored:
            raise SourceError(f"{redact(uri)}: the pattern names {name}, and there is no such file or folder")
        return hits, ignored

    def _is_folder(self, name: str) -> bool:
        if self.flat:
            return name.strip("/") in self._levels
        entry = self._tree.look(self.url(name))
        return entry is not None and entry.folder

    def find(self, folder: str, parts: Sequence[str]) -> tuple[list[Found], int]:
        """Return the files below ``folder`` that match, sorted by name, and the number passed over."""
        found: dict[str, Found] = {}
        ignored: set[str] = set()
        self._search(folder, tuple(parts), found, ignored)
        return sorted(found.values(), key=lambda file: file.name), len(ignored)

    def _search(self, folder: str, parts: tuple[str, ...], found: dict[str, Found], ignored: set[str]) -> None:
        part, rest = parts[0], parts[1:]
        if part == "**" and rest:
            self._search(folder, rest, found, ignored)
        matches = matcher(part)
        for key, entry in self._level(folder).items():
            last = key.rstrip("/")
            if not matches(last) or (rest and not entry.folder):
                continue
            name = f"{folder}/{last}" if folder else last
            if last.startswith(HIDDEN) and not part.startswith(HIDDEN):
                ignored.add(name)
            elif entry.folder:
                self._search(name, parts if part == "**" else rest or ("**",), found, ignored)
            elif is_marker(last):
                ignored.add(name)
            else:
                found[name] = Found(self.url(name), name, entry.size, entry.version)
