"""Windows: the documents that a lane holds to shuffle, read in order from a place on.

A window is a pure function of the shards' bytes, the rules and the place where it begins, so that a resume reads the
same one again. It never reaches over the end of an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from streamfeed.errors import CorruptShardError, EmptyStreamError, RecordError, ReplayError
from streamfeed.formats.detect import make_format
from streamfeed.formats.protocol import Bad, Cursor, Format
from streamfeed.lane.hold_out import Sieve
from streamfeed.lane.origins import Marks
from streamfeed.lane.records import UnitRecords
from streamfeed.lane.state import Place
from streamfeed.lane.texts import Texts
from streamfeed.plan.order import order_key, permutation
from streamfeed.stats import Tally
from streamfeed.storage.urls import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streamfeed.lane.pages import Pages
    from streamfeed.plan.plan import Rules, SourceHands, SourcePlan
    from streamfeed.storage.store import Store

__all__ = ["Window", "WindowReader"]


@dataclass(frozen=True, slots=True)
class Window:
    """Documents in the order in which they are packed. ``begin`` is where reading began, ``end`` where the next begins.

    ``digest`` is the hash of its texts as read; ``tally`` counts its records and what was dropped. A window without
    documents occurs only at an epoch's end, to carry the tally of what was dropped there. ``records``: int64
    ``[documents, 6]``, the documents' records (see :data:`~streamfeed.lane.origins.RECORD`), where these are asked for.
    """

    begin: Place
    end: Place
    texts: Texts
    digest: str
    tally: Tally
    records: NDArray[np.int64] | None = None


class WindowReader:
    """One lane's windows of one source, for ever or until ``last_epoch`` (exclusive) ends."""

    def __init__(
        self,
        plan: SourcePlan,
        rules: Rules,
        hands: SourceHands,
        *,
        source: int,
        lane: int,
        last_epoch: int | None,
        store: Store,
        remember: bool = False,
        pages: Pages | None = None,
    ) -> None:
        self._plan = plan
        self._rules = rules
        self._hands = hands
        self._source = source
        self._lane = lane
        self._last_epoch = last_epoch
        self._store = store
        self.shuffling = store.stats.stages.shuffle
        self._strided = bool((plan.units.step > 1).any())
        self._remember = remember
        self.pages = pages
        """where texts of large windows are held"""
        self._formats: dict[str, Format] = {}
        self.sieve = None if rules.hold_out is None else Sieve(rules.hold_out, plan.shape)
        """which documents are the stream's; None: all of them"""

    def windows(self, place: Place) -> Iterator[Window]:
        """Yield the windows from ``place`` on.

        Raises :class:`EmptyStreamError` where a whole epoch that repeats holds no document, and what readers raise.
        """
        while self._last_epoch is None or place.epoch < self._last_epoch:
            dropped = Tally()
            for window in self._rest_of_epoch(place):
                yield window
                place = window.end
                dropped.add(window.tally)
            place = self._next_epoch(place, dropped)

    def _next_epoch(self, place: Place, dropped: Tally) -> Place:
        """Return where the next epoch begins; a lane whose share held no document then reads the source whole.

        For good where shards are strided, since there are fewer records than lanes; for one epoch where it merely drew
        an empty shard.
        """
        nothing = place.window == 0 and self.repeats
        if nothing and (place.whole or self._rules.lanes == 1):
            raise EmptyStreamError(
                f"{redact(self._plan.shards.url(0))} and {len(self._plan.shards) - 1} more shards hold no document: "
                f"{dropped.records:,} records were read in epoch {place.epoch}, {dropped.without_rows()}"
            )
        return Place(epoch=place.epoch + 1, whole=nothing or (self._strided and place.whole))

    def _rest_of_epoch(self, place: Place) -> Iterator[Window]:
        """Yield the windows from ``place`` to the end of its epoch."""
        gathering = _Gathering(self, place)
        try:
            while True:
                with self.shuffling.busy:
                    window = gathering.window()
                if window.texts or window.tally != Tally():
                    yield window
                if not window.texts:
                    return
        finally:
            gathering.close()

    def order(self, count: int, place: Place) -> NDArray[np.int64] | None:
        """Return the order of the ``count`` documents of the window that begins at ``place``; None: as read."""
        if self._rules.shuffle_buffer == 0:
            return None
        key = order_key("window", self._rules.seed, self._source, place.epoch, self._lane, place.window)
        return permutation(key, count)

    def limits(self, place: Place) -> tuple[int, int]:
        """Return how many documents and bytes the window at ``place`` may hold."""
        return self._rules.window_limits(self._lane, first=place.window == 0)

    def hand_size(self, place: Place) -> int:
        """Return the number of units that the lane reads in the epoch of ``place``."""
        return len(self._hands.hand(place.epoch, self._lane, whole=place.whole))

    def unit(self, place: Place) -> int:
        """Return the number of the unit at ``place``."""
        return int(self._hands.hand(place.epoch, self._lane, whole=place.whole)[place.unit])

    def open_unit(self, place: Place) -> UnitRecords:
        """Open the unit at ``place`` at its cursor."""
        unit = self._hands.unit(self.unit(place), whole=place.whole)
        if unit.kind not in self._formats:
            self._formats[unit.kind] = make_format(unit.kind, self._plan.shape)
        return UnitRecords(unit, self._formats[unit.kind], self._store, Cursor(place.seek, place.skip), place.record)

    def changed(self, place: Place) -> ReplayError:
        """Return the error for a window at ``place`` that has other documents than it had."""
        shard = "the shards"
        if place.unit < self.hand_size(place):
            shard = redact(self._plan.shards.url(int(self._plan.units.shard[self.unit(place)])))
        return ReplayError(
            f"source {self._source}, {shard}: the documents read again from unit {place.unit} of epoch {place.epoch}, "
            f"record {place.record} are not those that were read before the checkpoint; the shards changed"
        )

    def marks(self, place: Place) -> Marks | None:
        """Return what keeps the records of the window at ``place``; None where nobody asks for them."""
        return Marks(self._source, place.epoch) if self._remember else None

    @property
    def repeats(self) -> bool:
        """Whether epochs follow each other without end."""
        return self._last_epoch is None

    def without_tokens(self, epoch: int, documents: int, dropped: Tally) -> EmptyStreamError:
        """Return the error for an epoch of ``documents`` documents without a token, with what was ``dropped``."""
        return EmptyStreamError(
            f"{redact(self._plan.shards.url(0))} and {len(self._plan.shards) - 1} more shards gave not one token of "
            f"the {documents:,} documents that lane {self._lane} read in epoch {epoch}: {dropped.dropped()}"
        )

    @property
    def window_bytes(self) -> int:
        """What a window may hold by the settings; an epoch's first one, and those of a listed order, are smaller."""
        return self._rules.window_bytes

    @property
    def skips(self) -> bool:
        """Whether the lane passes over what the bytes prove bad."""
        return self._rules.on_error == "skip"


class _Gathering:
    """The lane's position while it gathers windows: the open unit, and the place behind the last record taken."""

    def __init__(self, reader: WindowReader, place: Place) -> None:
        self._reader = reader
        self._place = place
        self._units = reader.hand_size(place)
        self._records: UnitRecords | None = None
        self._unit = -1

    def close(self) -> None:
        if self._records is not None:
            self._records.close()
            self._records = None

    def window(self) -> Window:
        """Gather one window; without texts when the epoch holds no more."""
        begin = self._place
        most_documents, most_bytes = self._reader.limits(begin)
        documents: list[bytes | memoryview] = []
        digest = xxhash.xxh3_64()
        total = 0
        tally = Tally()
        marks = self._reader.marks(begin)
        while len(documents) < most_documents and total < most_bytes:
            records = self._fill(tally)
            if records is None:
                break
            run = records.take_run(most_documents - len(documents), most_bytes - total)
            if run is not None:
                nbytes, some = self._of_run(*run, digest, tally)
                if marks is not None:
                    marks.run(self._unit, records, run[1], some)
                documents += some
                total += nbytes
                continue
            text = self._keep(records, tally)
            if text is None:
                continue
            if documents and total + len(text) > most_bytes:
                records.give_back()
                tally.records -= 1
                break
            tally.oversized += len(text) > self._reader.window_bytes
            digest.update(text)
            documents.append(text)
            total += len(text)
            if marks is not None:
                marks.one(self._unit, records)
        digest.update(np.asarray([len(document) for document in documents], dtype=np.int64).tobytes())
        self._place = self._behind(begin, advanced=bool(documents))
        self._reader.shuffling.count(len(documents), total)
        order = self._reader.order(len(documents), begin)
        kept = None if marks is None else marks.table(order)
        return Window(begin, self._place, Texts(documents, order, self._reader.pages), digest.hexdigest(), tally, kept)

    def _of_run(
        self, data: memoryview, texts: list[memoryview], digest: xxhash.xxh3_64, tally: Tally
    ) -> tuple[int, list[memoryview]]:
        """Return how many bytes of a run of texts are the stream's, and these texts; hash them as what they follow."""
        tally.records += len(texts)
        if self._reader.sieve is None:
            digest.update(data)
            return len(data), texts
        kept = self._reader.sieve.texts(texts)
        tally.held_out += len(texts) - len(kept)
        for text in kept:
            digest.update(text)
        return sum(map(len, kept)), kept

    def _behind(self, begin: Place, *, advanced: bool) -> Place:
        place = replace(self._place, window=begin.window + advanced)
        if self._records is None:
            return place
        cursor = self._records.cursor
        return replace(place, seek=cursor.seek, skip=cursor.skip, record=self._records.record)

    def _fill(self, tally: Tally) -> UnitRecords | None:
        """Return the open unit with a record at hand, opening units as needed; None at the epoch's end."""
        while self._place.unit < self._units:
            if self._records is None:
                self._records = self._reader.open_unit(self._place)
                self._unit = self._reader.unit(self._place)
            try:
                if self._records.fill():
                    return self._records
            except CorruptShardError:
                if not self._reader.skips:
                    raise
                tally.broken_shards += 1
            self.close()
            self._place = replace(self._place, unit=self._place.unit + 1, seek=0, skip=0, record=0)
        return None

    def _keep(self, records: UnitRecords, tally: Tally) -> bytes | memoryview | None:
        """Take the next record; return its text in UTF-8, or None where it is not the lane's or not a document."""
        phase, step = records.stride
        mine = step == 1 or records.record % step == phase
        value = records.take()
        if not mine:
            return None
        tally.records += 1
        if value is None:
            tally.null += 1
            return None
        if not isinstance(value, Bad) and not len(value):
            tally.empty += 1
            return None
        if isinstance(value, memoryview):
            return self._of_stream(value, tally)
        bad = value
        if isinstance(value, str):
            try:
                return self._of_stream(value.encode(), tally)
            except UnicodeEncodeError as error:
                bad = Bad(f"record {records.record - 1}", f"the text is not Unicode: {error.reason} at {error.start}")
        assert isinstance(bad, Bad)
        if not self._reader.skips:
            raise RecordError(records.file.shard, bad.where, bad.cause, bad.advice)
        tally.skipped += 1
        return None

    def _of_stream(self, value: bytes | memoryview, tally: Tally) -> bytes | memoryview | None:
        """Return the document that ``value`` holds, or None where it is left to the other part of a hold-out."""
        if self._reader.sieve is None:
            return value
        document, ours = self._reader.sieve.document(value)
        if not len(document):
            tally.empty += 1
            return None
        tally.held_out += not ours
        return document if ours else None
