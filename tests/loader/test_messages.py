"""What a host's messages hold: small ones until the first batch is out, and every row in front of a bad one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamfeed.dataset.host import Host
from streamfeed.dataset.message import Layout
from streamfeed.loader.job import LEAST_MESSAGE_BYTES, MESSAGE_BYTES, RINGS_BYTES, message_bytes
from streamfeed.loader.ring import SLOTS
from tests.streams import CACHE, Batches, InProcessLoader, corpus, equal, stream, take, take_into

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streamfeed.config import StreamConfig
    from streamfeed.dataset.message import Buffers, Message
    from streamfeed.encode.protocol import Encoded, Engine

pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.fixture
def config(tmp_path: Path, tokenizer: Any) -> StreamConfig:
    corpus(tmp_path, "jsonl", [40, 25, 33], words=40)
    return stream(tmp_path, "jsonl", tokenizer, lanes=6)


def loader_of(config: StreamConfig, batch_size: int, workers: int = 1) -> InProcessLoader:
    return InProcessLoader(config, batch_size, workers=workers, rank=0, world_size=1, cache_dir=CACHE)


@pytest.mark.parametrize("batch_size", [1, 5, 6, 7, 20])
@pytest.mark.parametrize("workers", [1, 4])
def test_messages_are_of_one_round_until_the_first_batch_is_out(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch, batch_size: int, workers: int
) -> None:
    asked: list[int] = []
    message = Host.message

    def watched(host: Host, rounds: int, buffers: Buffers) -> Message:
        asked.append(rounds)
        return message(host, rounds, buffers)

    monkeypatch.setattr(Host, "message", watched)
    loader = loader_of(config, batch_size, workers)
    for skipped in (0, 7):  # from the start, and from the middle of a round
        take(loader, skipped)
        state = loader.state_dict()
        loader.load_state_dict(state)
        asked.clear()
        take(loader, 1)
        assert set(asked) == {1}
    take(loader, 200)
    assert max(asked) > 16


def test_messages_are_large_for_few_workers_and_the_rings_of_many_take_no_more_together() -> None:
    layouts = [Layout(2048, 1025), Layout(2048, 2048, flags=True, values=True), Layout(131_072, 65_537)]
    for layout in layouts:
        sizes = [message_bytes(layout, workers) for workers in range(1, 65)]
        assert sizes[0] == MESSAGE_BYTES
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[-1] == LEAST_MESSAGE_BYTES
        for workers, nbytes in enumerate(sizes, 1):
            assert nbytes == LEAST_MESSAGE_BYTES or SLOTS * workers * nbytes * layout.nbytes(1) <= (
                RINGS_BYTES * 4 * layout.seq_len
            )


class PickyEngine:
    """Raises at texts with a certain beginning."""

    name = "picky"

    def __init__(self, engine: Engine, beginning: str) -> None:
        self._engine, self._beginning = engine, beginning

    def encode(self, texts: Sequence[str]) -> Encoded:
        if any(text.startswith(self._beginning) for text in texts):
            raise ValueError(f"{self._beginning} is bad")
        return self._engine.encode(texts)


@pytest.mark.parametrize("bad", ["id=20;", "id=70;", "id=3;"])
@pytest.mark.parametrize("workers", [1, 4])
def test_all_batches_in_front_of_a_bad_row_are_handed_out_however_large_the_messages(
    config: StreamConfig, monkeypatch: pytest.MonkeyPatch, bad: str, workers: int
) -> None:
    reference = take(loader_of(config, 2), 200)
    from streamfeed.encode.objectives import build as objectives
    from streamfeed.loader import job

    build: Callable[..., Engine] = vars(objectives)["build_engine"]
    found: list[Batches] = []
    for nbytes in (1, 2 << 20):
        monkeypatch.setattr(job, "MESSAGE_BYTES", nbytes)
        monkeypatch.setattr(objectives, "build_engine", lambda *args, **named: PickyEngine(build(*args, **named), bad))
        loader = loader_of(config, 2, workers)
        batches: Batches = []
        with pytest.raises(ValueError, match="is bad"):
            take_into(batches, loader)
        found.append(batches)
        assert loader.state_dict()["rows"] == 2 * len(batches)
        monkeypatch.setattr(objectives, "build_engine", build)  # the record is mended
        assert equal(take(loader, 20), reference[len(batches) : len(batches) + 20])
    small, large = found
    assert 0 < len(small) == len(large)
    assert equal(large, reference[: len(large)])
