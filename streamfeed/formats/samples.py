"""Samples of a WebDataset tar: its members by key and extension."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from streamfeed.errors import CorruptShardError, ReadError
from streamfeed.formats.fields import listed
from streamfeed.formats.jsontext import text_in_json
from streamfeed.formats.members import Member, walk
from streamfeed.formats.protocol import Bad, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = [
    "MEMBER_LIMIT",
    "Index",
    "Sample",
    "SampleReader",
    "SampleText",
    "doubled",
    "index_of",
    "key_and_extension",
    "member_data",
    "place_of",
    "sample_of",
    "text_in",
]

MEMBER_LIMIT = 1 << 28
"""Bytes that a member may have whose text is read."""


@dataclass(slots=True)
class Sample:
    """The members of one key. ``begin`` is the byte of its first member's header, where the sample stands."""

    key: str
    begin: int
    members: dict[str, Member] = field(default_factory=dict)
    double: tuple[Member, Member] | None = None

    def add(self, member: Member, extension: str) -> None:
        """Take another member; a second one of the same extension makes the sample bad."""
        if extension in self.members:
            self.double = (self.members[extension], member)
        else:
            self.members[extension] = member


@dataclass(frozen=True, slots=True)
class Index:
    """Every sample in order, and what ended the walk early.

    ``regular``: the members of each sample follow one another and no header speaks for members behind it, so that a
    walk from the first header of any sample finds the same.
    """

    samples: list[Sample]
    failure: CorruptShardError | None
    regular: bool


def key_and_extension(name: str) -> tuple[str, str] | None:
    """Split a member's name into its sample's key and its extension, as ``webdataset`` does; ``None`` for no sample.

    The extension begins at the first dot of the base name, so dots in folder names mean nothing. What stands before
    that dot, in the base name or (where that begins with a dot) in the folders behind the last one with a dot, may not
    be empty.
    """
    slash = name.rfind("/")
    dot = name.find(".", slash + 1)
    before = name.rfind(".", 0, slash + 1)
    if dot < 0:
        return None
    if before < 0:
        fits = dot > 0
    else:
        folder = name.find("/", before + 1, dot - 1)
        newline = name.find("\n")  # no folder name with a newline counts
        fits = folder >= 0 and (newline < 0 or folder < newline)
    return (name[:dot], name[dot + 1 :]) if fits else None


def sample_of(name: str) -> tuple[str, str] | None:
    """Return the key and the extension, in lower case, of a member that belongs to a sample.

    ``__meta__`` names and hidden files are about the archive, not of a sample.
    """
    top = name.partition("/")[0]
    if (len(top) >= 4 and top.startswith("__") and top.endswith("__")) or name[name.rfind("/") + 1 :].startswith("."):
        return None
    split = key_and_extension(name)
    return None if split is None else (split[0], split[1].lower())


def index_of(raw: RawFile, file: ShardFile) -> Index:
    """Walk the headers and group the members by key, also those that are not neighbours."""
    samples: dict[str, Sample] = {}
    last: Sample | None = None
    failure: CorruptShardError | None = None
    adjacent = True
    defaults: dict[str, str] = {}
    try:
        for member in walk(raw, file, defaults=defaults):
            split = sample_of(member.name)
            if split is None:
                continue
            key, extension = split
            sample = samples.get(key)
            if sample is None:
                sample = samples[key] = Sample(key, member.begin)
            elif sample is not last:
                adjacent = False
            sample.add(member, extension)
            last = sample
    except CorruptShardError as error:
        failure = error
    return Index(list(samples.values()), failure, adjacent and not defaults and failure is None)


def member_data(raw: RawFile, file: ShardFile, member: Member) -> bytes:
    """Return the bytes of ``member``."""
    data = raw.read_at(member.data, member.size)
    if len(data) < member.size:
        cause = f"the file ended here while {file.size:,} bytes were expected"
        raise ReadError(file.shard, f"byte {member.data + len(data)}", cause, "it was changed while it was read")
    return data


class SampleReader(Protocol):
    """Makes the value of a sample."""

    extensions: frozenset[str]
    """extensions of the members that may be read"""

    def whole(self, sample: Sample) -> bool:
        """Return whether no member is missing."""

    def stored(self, sample: Sample) -> int:
        """Return the bytes of the members that are read."""

    def value(self, sample: Sample, data_of: Callable[[Member], bytes]) -> Value:
        """Return the value, or what is bad about the sample."""


class SampleText:
    """Finds one text in samples: a member by its extension (``txt``), or a field of a JSON member (``json.text``)."""

    def __init__(self, field: str) -> None:
        parts = field.split(".")
        cuts = range(len(parts), 0, -1)  # an extension that has the dots itself wins
        self._ways = [(".".join(parts[:cut]).lower(), ".".join(parts[cut:])) for cut in cuts]
        self.extensions = frozenset(extension for extension, _ in self._ways)
        """extensions of the members that may hold the text"""

    def whole(self, sample: Sample) -> bool:
        """Return whether there is a member that holds the text."""
        return self.found(sample) is not None

    def stored(self, sample: Sample) -> int:
        """Return the bytes of the member that holds the text."""
        found = self.found(sample)
        return found[0].size if found else 0

    def value(self, sample: Sample, data_of: Callable[[Member], bytes]) -> Value:
        """Return the text, or what is bad about the sample."""
        where = place_of(sample)
        read = doubled(sample, where) or self.data(sample, where, data_of)
        if isinstance(read, Bad):
            return read
        member, path, data = read
        if path:
            return text_in_json(data, path, where, f"member {member.name!r}")
        return text_in(data, member, where)

    def data(self, sample: Sample, where: str, data_of: Callable[[Member], bytes]) -> tuple[Member, str, bytes] | Bad:
        """Return the member that holds the text, the path in its JSON (empty: it is the text) and its data."""
        found = self.found(sample)
        if found is None:
            return Bad(where, f"there is no member {self._ways[-1][0]!r}; members present: {listed(sample.members)}")
        member, path = found
        if member.size > MEMBER_LIMIT:
            return Bad(where, f"member {member.name!r} has {member.size:,} bytes, at most {MEMBER_LIMIT:,} are read")
        return member, path, data_of(member)

    def found(self, sample: Sample) -> tuple[Member, str] | None:
        """Return the member that holds the text, and the path in its JSON."""
        for extension, path in self._ways:
            member = sample.members.get(extension)
            if member is not None:
                return member, path
        return None


def place_of(sample: Sample) -> str:
    """Return the sample's place in words."""
    return f"sample {sample.key!r} at byte {sample.begin}"


def doubled(sample: Sample, where: str) -> Bad | None:
    """Return what is bad about a sample with two members of one extension."""
    if not sample.double:
        return None
    names = " and ".join(f"{member.name!r} at byte {member.begin}" for member in sample.double)
    return Bad(where, f"two members have the same key and extension: {names}")


def text_in(data: bytes, member: Member, where: str) -> str | Bad:
    """Return the text that ``member`` is."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return Bad(where, f"member {member.name!r} is not valid UTF-8: {error.reason} at its byte {error.start}")
