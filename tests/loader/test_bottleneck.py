"""Who is to blame: from the accounts of all threads to one stage and a knob."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streamfeed.loader.advice import suggest_workers
from streamfeed.loader.bottleneck import Bottleneck, Circumstances, find
from streamfeed.loader.flow import Flow
from streamfeed.stages import NOTHING, STAGES, Figures, Work

S = 1_000_000_000
HERE = Circumstances(workers=2, cores=8, slots=48)


def figures(**busy: float) -> Figures:
    """Accounts in seconds: ``encode=1`` is busy, ``encode_blocked=1`` and ``read_starved=1`` are the others."""
    works = dict.fromkeys(STAGES, Work())
    for name, seconds in busy.items():
        stage, _, kind = name.partition("_")
        works[stage] = works[stage]._replace(**{f"{kind or 'busy'}_ns": int(seconds * S)})
    return Figures(tuple(works.values()))


TRAINER = figures(receive_starved=5, receive=0.01, assemble=0.1, wait=5.2)


def blamed(*workers: Figures, trainer: Figures = TRAINER, here: Circumstances = HERE) -> Bottleneck:
    """The bottleneck of ten seconds of which training waited five."""
    return find(Flow(trainer, workers), 5.2, 10.0, here)


@pytest.mark.parametrize(
    ("worker", "stage"),
    [
        (figures(encode=8, read=1, pack=1, pack_starved=8), "encode"),
        (figures(encode=1, map=8, pack=1, pack_starved=8), "map"),
        (figures(read_starved=8, fetch=60, encode=1, pack=1, pack_starved=8), "read"),
        (figures(read=8, encode=1, pack=1, pack_starved=8), "read"),
        (figures(decompress=8, encode=1, pack=1, pack_starved=8), "decompress"),
        (figures(decode=8, encode=1, pack=1, pack_starved=8), "decode"),
        (figures(shuffle=8, encode=1, pack=1, pack_starved=8), "shuffle"),
        (figures(encode=2, encode_blocked=8, pack=8, send=1, pack_starved=1), "pack"),
        (figures(encode=2, encode_blocked=8, pack=1, send=8, pack_starved=1), "send"),
    ],
)
def test_the_stage_that_all_wait_for_is_named(worker: Figures, stage: str) -> None:
    assert blamed(worker, worker).stage == stage


def test_requests_that_run_ahead_are_not_time_that_anybody_waits() -> None:
    worker = figures(fetch=70, read_starved=0.1, encode=8, pack=1, pack_starved=8)
    assert blamed(worker, worker).stage == "encode"


def test_of_several_workers_it_is_the_one_that_has_nothing_to_spare() -> None:
    quick = figures(encode=8, pack=1, pack_starved=1, send_blocked=7)
    slow = figures(map=8, pack=1, pack_starved=8)
    assert blamed(quick, slow).stage == blamed(slow, quick).stage == "map"


def test_without_workers_the_largest_part_of_the_training_process_is_named() -> None:
    trainer = figures(encode=3, read=1, decode=0.5, assemble=0.2, wait=5.2)
    found = blamed(trainer=trainer, here=replace(HERE, workers=0))
    assert (found.stage, "raise loader.num_workers from 0 to 1" in found.advice) == ("encode", True)
    assert "the training process" in found.why


def test_assembly_is_named_where_messages_are_there_and_batches_are_not() -> None:
    trainer = figures(receive_starved=0.5, receive=0.1, assemble=4, wait=5.2)
    assert blamed(figures(encode=3, send_blocked=5), trainer=trainer).stage == "assemble"
    trainer = figures(receive_starved=0.5, receive=0.1, assemble=1, copy=3, wait=5.2)
    assert blamed(figures(encode=3, send_blocked=5), trainer=trainer).stage == "copy"


def test_training_is_named_where_it_does_not_wait() -> None:
    found = find(Flow(TRAINER, (figures(encode=8),)), 0.1, 10.0, HERE)
    assert (found.stage, found.advice) == ("training", "")
    assert find(Flow(), 0.0, 0.0, HERE).stage == "training"


def test_other_ranks_are_named_where_this_one_had_its_data() -> None:
    trainer = figures(receive_starved=0.1, assemble=0.1, wait=0.2)
    worker = figures(encode=3, encode_blocked=7)
    assert blamed(worker, trainer=trainer, here=replace(HERE, ranks=2)).stage == "other ranks"
    assert blamed(worker, trainer=trainer).stage != "other ranks"


def test_workers_that_have_told_nothing_yet_are_starting() -> None:
    assert blamed(NOTHING, NOTHING).stage == "start"


@pytest.mark.parametrize(
    ("here", "advice"),
    [
        (HERE, "raise loader.num_workers from 2 to 5"),  # training waited for half of its time
        (replace(HERE, cores=4), "raise loader.num_workers from 2 to 3"),  # the trainer has one of them
        (replace(HERE, cores=3), "give this rank more cores: all 3 are in use"),
        (replace(HERE, cores=2), "give this rank more cores: all 2 are in use"),
        (replace(HERE, slots=2), "begin the run with more data.lanes"),
        (replace(HERE, engine="huggingface", why="its pre-tokenizer is unknown"), "its pre-tokenizer is unknown"),
    ],
)
def test_the_advice_is_a_knob_that_can_be_turned(here: Circumstances, advice: str) -> None:
    worker = figures(encode=8, pack=1, pack_starved=8)
    assert advice in blamed(worker, worker, here=here).advice


def test_a_store_that_is_waited_for_takes_no_core() -> None:
    worker = figures(read_starved=8, encode=1, pack=1, pack_starved=8)
    found = blamed(worker, worker, here=replace(HERE, cores=2, remote=True))
    assert found.advice == "raise loader.num_workers from 2 to 5, or bring the shards nearer"
    assert str(found).startswith("read: 89% of the time of a worker, reading shards; raise")


@pytest.mark.parametrize("cores", range(1, 9))
def test_it_never_asks_for_more_workers_than_are_suggested(cores: int) -> None:
    worker = figures(encode=8, pack=1, pack_starved=8)
    most = suggest_workers(cores, 48).workers
    for workers in range(1, 9):
        said = blamed(worker, worker, here=replace(HERE, cores=cores, workers=workers)).advice
        assert said.startswith("raise ") is (workers < most)
        assert int(said.split()[-1]) <= most if said.startswith("raise ") else "more cores" in said
