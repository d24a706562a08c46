"""The state of a run: how many rows were handed out, and where each lane stood at or before its share of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamfeed.errors import StateError
from streamfeed.lane.state import LaneState
from streamfeed.plan.fingerprint import differences
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from streamfeed.plan.plan import Plan

__all__ = ["STATE_VERSION", "StreamState", "merge_states"]

STATE_VERSION = 2


@dataclass(frozen=True)
class StreamState:
    """``rows`` global rows of pass ``number`` were handed out; ``lanes`` stand at or before their share of them.

    The pass began with epoch ``first_epoch``; it ends with the ``epochs`` of the config that runs it, then or now.
    A state that has no lane at all is that of a pass that has not begun (``rows`` is 0) or has ended.
    """

    fingerprint: Mapping[str, Any]
    number: int = 0
    first_epoch: int = 0
    rows: int = 0
    ended: bool = False
    lanes: Mapping[int, LaneState] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    """a hash of the shards' versions for each source, as they were when the run planned; empty where not known"""

    @property
    def lane_count(self) -> int:
        """The number of lanes of the stream."""
        return int(self.fingerprint["lanes"])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "version": STATE_VERSION,
            "pass": self.number,
            "first_epoch": self.first_epoch,
            "rows": self.rows,
            "ended": self.ended,
            "lanes": {str(lane): state.to_json() for lane, state in sorted(self.lanes.items())},
            "fingerprint": dict(self.fingerprint),
            "versions": list(self.versions),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StreamState:
        """Read what :meth:`to_json` wrote. Raises :class:`StateError` where it is not that."""
        if not isinstance(data, Mapping) or "version" not in data:
            raise StateError("this is not the state of a stream; pass what state_dict() returned")
        if data["version"] != STATE_VERSION:
            raise StateError(f"the state has version {data['version']}, this streamfeed reads {STATE_VERSION}")
        try:
            state = cls(
                fingerprint=dict(data["fingerprint"]),
                number=int(data["pass"]),
                first_epoch=int(data["first_epoch"]),
                rows=int(data["rows"]),
                ended=bool(data["ended"]),
                lanes={int(lane): LaneState.from_json(state) for lane, state in data["lanes"].items()},
                versions=tuple(str(version) for version in data.get("versions", ())),
            )
            sources = len(state.fingerprint["sources"])
            unfit = [
                lane for lane, one in state.lanes.items() if len(one.sources) != sources or lane >= state.lane_count
            ]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(f"the state cannot be read: {error!r}; the checkpoint is damaged") from error
        if unfit or min(state.rows, state.number, state.first_epoch) < 0:
            raise StateError(
                f"the state does not fit itself (lanes {_named(unfit)}, row {state.rows}, pass {state.number}); "
                "the checkpoint is damaged"
            )
        return state

    def check(self, fingerprint: Mapping[str, Any]) -> None:
        """Refuse a state of another stream, one that lacks lanes, and one whose lanes have run ahead.

        Raises :class:`StateError` that names what differs or lacks.
        """
        lines = differences(self.fingerprint, fingerprint)
        if lines:
            raise StateError("the state belongs to another stream:\n  " + "\n  ".join(lines))
        if self.rows == 0 or self.ended:
            return
        missing = sorted(set(range(self.lane_count)) - set(self.lanes))
        if missing:
            raise StateError(
                f"the state lacks {len(missing)} of {self.lane_count} lanes ({_named(missing)}): it is one rank's; "
                "join the states of all ranks with merge_states"
            )
        for lane, state in self.lanes.items():
            if state.rows > max(0, -(-(self.rows - lane) // self.lane_count)):
                raise StateError(f"lane {lane} stands at row {state.rows}, behind its share of {self.rows} rows")

    def lane_states(self, sources: int) -> dict[int, LaneState]:
        """Return every lane's state; lanes of a pass that has not begun start at its first epoch."""
        start = LaneState.start(sources, self.first_epoch)
        return {lane: self.lanes.get(lane, start) for lane in range(self.lane_count)}

    def next_pass(self, epochs: int) -> StreamState:
        """Return the state at the beginning of the next pass, behind one of ``epochs``."""
        first_epoch = self.first_epoch + epochs
        return StreamState(self.fingerprint, number=self.number + 1, first_epoch=first_epoch, versions=self.versions)

    def version_warnings(self, plan: Plan) -> list[str]:
        """Say which sources' shards have other versions than when the state was saved, by what stores say of them."""
        pairs = zip(plan.sources, self.versions, plan.versions(), strict=False)
        return [
            f"source {index} ({redact(source.shards.url(0))} and {len(source.shards) - 1:,} more): shards have other "
            "versions (etags or times) than when the state was saved, at the same names and sizes; rows are the same "
            "only if their bytes are"
            for index, (source, saved, now) in enumerate(pairs)
            if saved and now and saved != now
        ]


def merge_states(states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states that the ranks of one run saved at the same step into one that any topology can load.

    Raises :class:`StateError` where they are of unequal streams, passes or numbers of rows.
    """
    parts = [StreamState.from_json(state) for state in states]
    if not parts:
        raise StateError("there are no states to merge")
    return _merge(parts).to_json()


def _merge(parts: Sequence[StreamState]) -> StreamState:
    first = parts[0]
    lanes: dict[int, LaneState] = {}
    for index, part in enumerate(parts):
        lines = differences(first.fingerprint, part.fingerprint)
        if lines:
            raise StateError(f"state {index} belongs to another stream than state 0:\n  " + "\n  ".join(lines))
        if (part.number, part.rows, part.ended) != (first.number, first.rows, first.ended):
            raise StateError(
                f"state {index} was saved at row {part.rows:,} of pass {part.number} and state 0 at row {first.rows:,} "
                f"of pass {first.number}; merge states that were saved at the same step"
            )
        for lane, state in part.lanes.items():
            if lane not in lanes or lanes[lane].rows < state.rows:
                lanes[lane] = state
    return replace(first, lanes=lanes)


def _named(lanes: Sequence[int]) -> str:
    return ", ".join(map(str, lanes[:8])) + (", ..." if len(lanes) > 8 else "")
