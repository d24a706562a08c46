"""The oracle of resume: behind every batch of a run a fresh one goes on to the bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.streams import Batches, Run, equal, take

if TYPE_CHECKING:
    from streamfeed import StreamConfig


def check_every_batch(
    config: StreamConfig, most: int | None, *, ahead: int = 12, all_the_rest: int = 7, at_least: int = 20
) -> None:
    """Check a run of ``most`` batches, or of a whole pass, of more than ``at_least``.

    Behind every batch the next ``ahead`` are compared, behind every ``all_the_rest``-th all that follow; at the end of
    a pass so is what became of the records.
    """
    run = Run.start(config, 1, 2, workers=2)
    whole: Batches = []
    states = [run.state()]
    while len(whole) != most and (batch := take(run.loaders[0], 1)):
        whole += batch
        states.append(run.state())
    assert len(whole) > at_least
    for taken, state in enumerate(states):
        rest = whole[taken:] if taken % all_the_rest == 0 else whole[taken : taken + ahead]
        ends = most is None and taken + len(rest) == len(whole)
        again = Run.start(config, 1, 2, workers=2, state=state).loaders[0]
        assert equal(take(again, None if ends else len(rest)), rest), f"resumed behind batch {taken}"
        assert not ends or again.report().tally == run.loaders[0].report().tally
