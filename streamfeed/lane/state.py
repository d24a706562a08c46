"""Where a lane stands, as a handful of numbers. All of it is JSON, and a window's contents are never in it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from streamfeed.errors import StateError
from streamfeed.stats import Tally

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LaneState", "Place", "SourceState"]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a lane's reading of a source: where a window begins or ends.

    ``unit`` counts the units of the lane's hand of ``epoch``; ``seek`` and ``skip`` are the reader's cursor in it;
    ``record`` is the ordinal, in the unit, of the record at the cursor; ``window`` counts the epoch's windows that held
    a document; ``whole`` is set while the lane reads the source whole (its own share held no document).
    """

    epoch: int = 0
    unit: int = 0
    seek: int = 0
    skip: int = 0
    record: int = 0
    window: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True)
class SourceState:
    """Where a lane stands in one source: document ``document`` of the shuffled window that begins at ``place``.

    ``sample`` samples of that document were taken (of the slice of documents that begins there, where a user's function
    is batched); it is 0 where a document is one sample.
    ``digest`` is the hash of the window's texts once a document of it was taken, else empty; ``tokens`` were taken from
    the source so far, ``due`` is the share of all tokens that it should have given; ``ended`` says that the source was
    found to hold no more (in a finite pass), from where on the others share its part.
    """

    place: Place = field(default_factory=Place)
    document: int = 0
    sample: int = 0
    digest: str = ""
    tokens: int = 0
    due: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class LaneState:
    """Everything that a fresh process needs to continue a lane behind its row ``rows``.

    ``offset`` tokens of the next document of source ``current`` are already in earlier rows (``current=-1``: none is
    open). ``chain`` is the chained hash of all rows so far.
    """

    rows: int = 0
    chain: int = 0
    current: int = -1
    offset: int = 0
    ended: bool = False
    tally: Tally = field(default_factory=Tally)
    sources: tuple[SourceState, ...] = ()

    @classmethod
    def start(cls, sources: int, epoch: int) -> LaneState:
        """Return the state of a lane that has not begun; ``epoch`` is the first of its pass."""
        return cls(sources=tuple(SourceState(Place(epoch=epoch)) for _ in range(sources)))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON; hashes are hexadecimal text, since JSON readers elsewhere lose integers over 2**53."""
        return {
            "rows": self.rows,
            "chain": f"{self.chain:016x}",
            "current": self.current,
            "offset": self.offset,
            "ended": self.ended,
            "tally": self.tally.counts(),
            "sources": [_source_to_json(source) for source in self.sources],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LaneState:
        """Read what :meth:`to_json` wrote. Raises :class:`StateError` where it is not that."""
        try:
            return cls(
                rows=_whole(data["rows"]),
                chain=int(data["chain"], 16),
                current=_whole(data["current"], least=-1),
                offset=_whole(data["offset"]),
                ended=_flag(data["ended"]),
                tally=Tally(**{name: _whole(count) for name, count in data["tally"].items()}),
                sources=tuple(_source_from_json(source) for source in data["sources"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"a lane's state cannot be read: {error!r}; the checkpoint is damaged") from error


def _whole(value: object, least: int = 0) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is no whole number of at least {least}")
    return value


def _flag(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


_PLACE_NAMES = tuple(item.name for item in fields(Place))
_PLACE_NUMBERS = tuple(name for name in _PLACE_NAMES if name != "whole")


def _source_to_json(source: SourceState) -> dict[str, Any]:
    place = source.place
    return {
        "epoch": place.epoch,
        "unit": place.unit,
        "seek": place.seek,
        "skip": place.skip,
        "record": place.record,
        "window": place.window,
        "whole": place.whole,
        "document": source.document,
        "sample": source.sample,
        "digest": source.digest,
        "tokens": source.tokens,
        "due": source.due,
        "ended": source.ended,
    }


def _source_from_json(data: Mapping[str, Any]) -> SourceState:
    return SourceState(
        place=Place(**{name: _whole(data[name]) for name in _PLACE_NUMBERS}, whole=_flag(data["whole"])),
        document=_whole(data["document"]),
        sample=_whole(data["sample"]),
        digest=str(data["digest"]),
        tokens=_whole(data["tokens"]),
        due=float(data["due"]),
        ended=_flag(data["ended"]),
    )
