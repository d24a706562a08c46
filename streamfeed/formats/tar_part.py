"""A part of a plain tar that can be read alone: its samples from front to back, with nothing read outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfeed.errors import CorruptShardError
from streamfeed.formats.members import walk
from streamfeed.formats.samples import MEMBER_LIMIT, Sample, member_data, sample_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.formats.members import Member
    from streamfeed.formats.samples import SampleReader
    from streamfeed.storage.files import ShardFile
    from streamfeed.storage.raw import RawFile

__all__ = ["TarPart"]

_HEADER = 512
_ADVICE = "make the manifest beside it again with streamfeed index, or copy the shard again"


class TarPart:
    """The samples of ``file`` whose first header lies in ``[start, stop)``; both are such headers, or an end.

    Members that are wanted are read on the way, since a store's reader goes forward only. What another order of members
    than the manifest promised would show is an error: it is of another shard.
    """

    def __init__(self, raw: RawFile, file: ShardFile, start: int, stop: int, text: SampleReader) -> None:
        self._raw = raw
        self._file = file
        self._start = start
        self._stop = stop
        self._text = text
        self._seen: set[str] = set()
        self._texts: dict[int, bytes] = {}
        self.failure: CorruptShardError | None = None
        """what ended the part early"""

    def data(self, member: Member) -> bytes:
        """Return the data of a member of the sample that was yielded last."""
        return self._texts[member.data]

    def samples(self, skip: int) -> Iterator[Sample]:
        """Yield the samples behind the first ``skip``; of one that is cut off, where its text is there."""
        self._raw.expect(self._start, min(self._stop + _HEADER, self._file.size))
        sample: Sample | None = None
        try:
            for member, key, extension in self._members():
                if sample is None or key != sample.key:
                    done, sample = sample, None
                    if done is not None and len(self._seen) > skip:
                        yield done
                    sample = self._new(key, member)
                if extension not in sample.members and len(self._seen) > skip:
                    self._keep(member, extension)
                sample.add(member, extension)
        except CorruptShardError as error:
            self.failure = error
        if sample is not None and len(self._seen) > skip and (self.failure is None or self._text.whole(sample)):
            yield sample

    def _members(self) -> Iterator[tuple[Member, str, str]]:
        """Yield the members that are of samples, with key and extension, and see that another sample begins behind."""
        last = ""
        for member in walk(self._raw, self._file, start=self._start):
            split = sample_of(member.name)
            if member.begin >= self._stop:
                if split is None or split[0] == last or member.begin > self._stop:
                    raise self._other(member)
                return
            if split is not None:
                last = split[0]
                yield member, *split

    def _new(self, key: str, member: Member) -> Sample:
        self._texts = {}
        if key in self._seen:
            raise self._other(member)
        self._seen.add(key)
        return Sample(key, member.begin)

    def _keep(self, member: Member, extension: str) -> None:
        if extension in self._text.extensions and member.size <= MEMBER_LIMIT:
            self._texts[member.data] = member_data(self._raw, self._file, member)

    def _other(self, member: Member) -> CorruptShardError:
        cause = f"member {member.name!r} is not where the manifest beside the shard says"
        return CorruptShardError(self._file.shard, f"byte {member.begin}", cause, _ADVICE)
