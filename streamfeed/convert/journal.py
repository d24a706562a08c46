"""What is finished of a conversion: small files beside the shards, in a folder that goes away at the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from streamfeed.errors import ConfigError, CorruptShardError
from streamfeed.formats.manifest import MANIFEST, Manifest, ShardEntry
from streamfeed.formats.marks import Counted
from streamfeed.storage.output import LocalOutput
from streamfeed.storage.sums import sums_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamfeed.storage.output import Output, Placed

__all__ = ["FOLDER", "Finished", "Journal"]

FOLDER = "_convert"
_BEGIN = f"{FOLDER}/begin.json"
_SCRATCH = FOLDER + "/tmp/"  # noqa: S108 - what a killed process leaves there is no sign of anything
_OURS = re.compile(r"shard-\d{5,}\.(parquet|tar|jsonl\.zst|tokens)")


class Finished(NamedTuple):
    """A shard that was placed: what the manifest will say of it, and the version that the store gave it."""

    entry: ShardEntry
    version: str


class Journal:
    """The journal in the folder ``output``."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def begin(self, said: dict[str, Any], *, overwrite: bool) -> Manifest | None:
        """Begin the conversion that ``said`` (JSON) describes, or go on with it; its manifest where it is complete.

        Raises :class:`ConfigError` for a folder that holds anything else, unless ``overwrite``: then shards, manifest
        and journal of conversions are removed first, and what is nothing of that is still refused.
        """
        begun = self.output.read(_BEGIN)
        text = orjson.dumps(said, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
        if begun == text:
            return None
        complete = self._complete(said) if begun is None else None
        if complete is not None:
            return complete
        if overwrite:
            self._wipe()
        names = self.output.names()
        strange = next((name for name in sorted(names) if not name.startswith(_SCRATCH)), None)
        if begun is not None and strange is not None:
            raise ConfigError(
                f"{self.output.shown} holds an unfinished conversion of another source or with other settings: "
                f"{_differing(begun, said)}; finish it as it was begun, or remove it with --overwrite"
            )
        if strange is not None:
            advice = "which no conversion made" if overwrite else "choose another folder, or pass --overwrite"
            raise ConfigError(f"{self.output.shown} is not empty: it holds {strange}; {advice}")
        self.output.write(_BEGIN, text)
        return None

    def _complete(self, said: dict[str, Any]) -> Manifest | None:
        data = self.output.read(MANIFEST)
        if data is None:
            return None
        try:
            manifest = Manifest.from_bytes(data, f"{self.output.shown}/{MANIFEST}")
        except CorruptShardError:
            return None
        if (manifest.settings, manifest.source) != (said["settings"], said["source"]):
            return None
        names = self.output.names()
        return manifest if all(names.get(shard.name) == shard.size for shard in manifest.shards) else None

    def _wipe(self) -> None:
        data = self.output.read(MANIFEST)
        names = self.output.names()
        ours = {name for name in names if _OURS.fullmatch(name)}
        if data is not None:
            ours.add(MANIFEST)
        self.output.remove(sorted(ours & names.keys()))
        self.output.clear(FOLDER)

    def count(self, piece: int) -> Counted | None:
        """Return what was counted of a piece of the source, None where nobody has."""
        data = self.output.read(_counts(piece))
        return None if data is None else Counted.from_json(orjson.loads(data))

    def note_count(self, piece: int, counted: Counted) -> None:
        """Keep what was counted of a piece."""
        self.output.write(_counts(piece), orjson.dumps(counted.to_json()))

    def counted(self) -> set[int]:
        """Return the pieces that have been counted."""
        prefix = f"{FOLDER}/counts/"
        found = (name.removeprefix(prefix).removesuffix(".json") for name in self.output.names() if _in(name, prefix))
        return {int(name) for name in found if name.isdecimal()}

    def note(self, number: int, entry: ShardEntry, placed: Placed) -> None:
        """Keep what a finished shard is."""
        said = {"entry": entry.to_json(), "version": placed.version}
        self.output.write(_done(number), orjson.dumps(said))

    def read(self, number: int) -> Finished | None:
        """Return what was noted of shard ``number``."""
        data = self.output.read(_done(number))
        if data is None:
            return None
        said = orjson.loads(data)
        return Finished(ShardEntry.from_json(said["entry"]), str(said["version"]))

    def check(self, number: int) -> ShardEntry | None:
        """Return what was noted of shard ``number``, if what is there is that shard.

        On a disk by its checksum, in a store by its size and version.
        """
        noted = self.read(number)
        if noted is None:
            return None
        placed = self.output.look(noted.entry.name)
        if placed is None or placed.size != noted.entry.size:
            return None
        if not isinstance(self.output, LocalOutput):
            return noted.entry if placed.version == noted.version else None
        with self.output.open(noted.entry.name) as file:
            return noted.entry if sums_of(file, placed.size) == noted.entry.sums else None

    def finish(self, manifest: Manifest) -> None:
        """Write the manifest, and remove the journal."""
        self.output.write(MANIFEST, manifest.to_bytes())
        self.output.clear(FOLDER)


def _in(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and name.endswith(".json")


def _counts(piece: int) -> str:
    return f"{FOLDER}/counts/{piece:05}.json"


def _done(number: int) -> str:
    return f"{FOLDER}/done/{number:05}.json"


def _differing(begun: bytes, said: dict[str, Any]) -> str:
    """Say which settings differ from those in the journal."""
    try:
        before = orjson.loads(begun)
    except ValueError:
        return "its journal is damaged"
    return ", ".join(_leaves(before, said)) or "nothing that can be said"


def _leaves(before: Any, now: Any, name: str = "") -> Iterable[str]:  # noqa: ANN401
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _leaves(before.get(key), now.get(key), f"{name}.{key}".removeprefix("."))
    elif before != now:
        yield f"{name} was {before!r} and is {now!r}"
