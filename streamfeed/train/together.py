"""What the ranks of a run decide together: that all have their data, and what to do when one has not."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import RankError
from streamfeed.train.stop import SIGNALS, Stop, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfeed.device.prefetch import DevicePrefetcher
    from streamfeed.topology import Ranks
    from streamfeed.train.attention import Batch

__all__ = ["Taken", "Together"]


class Taken(NamedTuple):
    """Batches of this rank; ``labels`` are those of all ranks."""

    batches: list[Batch]
    labels: int


@dataclass(frozen=True)
class Together:
    """Takes batches on all ranks at once, and stops or fails on all of them at once.

    One sum over the ranks goes with each take, on the CPU: the labels, and whether a rank was asked to stop or has
    failed. It is made before anything is computed with the batches, so that what is given up has left no trace.
    """

    ranks: Ranks
    stop: Stop

    def take(self, loader: DevicePrefetcher, batches: Iterator[Batch], count: int) -> Taken:
        """Take ``count`` of ``batches``, those of ``loader``, fewer at the end of a finite stream.

        The loader has measured their labels on the host, so that the device is not waited for.
        Raises :class:`Stopped` on all ranks when one was asked to stop, also while it waited for data; what it has
        gathered is given up. Raises what the data raised, on the other ranks
        :class:`~streamfeed.errors.RankError`.
        """
        micro: list[Batch] = []
        labels = 0
        failure: Exception | None = None
        try:
            with self.stop.interruptible():
                for batch in itertools.islice(batches, count):
                    micro.append(batch)
                    labels += loader.measured
        except Stopped:
            loader.leave()  # another rank may wait for this one's rows
        except Exception as error:  # noqa: BLE001 - raised below, once the others know
            failure = error
        failed = failure is not None and not isinstance(failure, RankError)
        said = [labels, int(failed)]
        said += [int(self.stop.asked == number) for number in SIGNALS]
        total, failures, *stops = self.ranks.sum(said)
        if failed or (failure is not None and not failures and not any(stops)):
            assert failure is not None
            raise failure
        if failures:
            raise RankError("the data of another rank failed; its own message says why")
        for number, asked in zip(SIGNALS, stops, strict=True):
            if asked:
                raise Stopped(self.stop.asked or number)
        return Taken(micro, total)
