"""Samples of a WebDataset tar: its members by key and extension."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError
from streamfeed.formats.members import Member, walk

if TYPE_CHECKING:
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["Index", "Sample", "index_of", "is_skipped", "key_and_extension"]


@dataclass(slots=True)
class Sample:
    """The members of one key. ``begin`` is the byte of its first member's header, where the sample stands."""

    key: str
    begin: int
    members: dict[str, Member] = field(default_factory=dict)
    double: tuple[Member, Member] | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """Every sample in order, and what ended the walk early."""

    samples: list[Sample]
    failure: CorruptShardError | None


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


def is_skipped(name: str) -> bool:
    """Return whether a member is about the archive, not of a sample: ``__meta__`` names and hidden files."""
    top = name.partition("/")[0]
    if len(top) >= 4 and top.startswith("__") and top.endswith("__"):
        return True
    return name[name.rfind("/") + 1 :].startswith(".")


def index_of(raw: RawFile, file: ShardFile) -> Index:
    """Walk the headers and group the members by key, also those that are not neighbours."""
    samples: dict[str, Sample] = {}
    try:
        for member in walk(raw, file):
            split = None if is_skipped(member.name) else key_and_extension(member.name)
            if split is None:
                continue
            key, extension = split[0], split[1].lower()
            sample = samples.get(key)
            if sample is None:
                sample = samples[key] = Sample(key, member.begin)
            if extension in sample.members:
                sample.double = (sample.members[extension], member)
            else:
                sample.members[extension] = member
    except CorruptShardError as error:
        return Index(list(samples.values()), error)
    return Index(list(samples.values()), None)
