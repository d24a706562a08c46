from __future__ import annotations

import logging
import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamfeed.encode.engines import CheckedEngine, build_engine, engine_threads
from streamfeed.encode.fast import FastokensEngine
from streamfeed.encode.huggingface import HuggingFaceEngine
from streamfeed.encode.proof import Verdict, thread_environment
from streamfeed.encode.protocol import Encoded, Engine
from streamfeed.errors import EngineError
from tests.encode.tokenizer_kinds import spec_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SPEC = spec_of("llama3_bpe")
RIGHT = (SPEC.json, SPEC.frame)


@pytest.fixture(params=[FastokensEngine, HuggingFaceEngine], scope="module")
def engine(request: pytest.FixtureRequest) -> Engine:
    built: Engine = request.param(*RIGHT)
    return built


class Wrong:
    """An engine that is right but for the last id of texts that hold the word ``wrong``."""

    name = "fastokens"

    def __init__(self) -> None:
        self._right = HuggingFaceEngine(*RIGHT)

    def encode(self, texts: Sequence[str]) -> Encoded:
        right = self._right.encode(texts)
        ids = right.ids.copy()
        for index, text in enumerate(texts):
            if "wrong" in text:
                ids[right.offsets[index + 1] - 1] += 1
        return Encoded(ids, right.offsets)


class Counting:
    """The reference, with every text that it was asked for."""

    name = "huggingface"

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._right = HuggingFaceEngine(*RIGHT)

    def encode(self, texts: Sequence[str]) -> Encoded:
        self.seen.extend(texts)
        return self._right.encode(texts)


def _given(engine: Engine) -> Engine:
    return engine


def test_no_texts_and_empty_texts_have_no_ids(engine: Engine) -> None:
    for texts in ([], [""], ["", "", ""]):
        encoded = engine.encode(texts)
        assert encoded.ids.shape == (0,)
        assert encoded.offsets.tolist() == [0] * (len(texts) + 1)
        assert encoded.ids.dtype == np.dtype(np.int32)
        assert encoded.offsets.dtype == np.dtype(np.int64)


def test_offsets_bound_each_text(engine: Engine) -> None:
    texts = ["import os", "", "x", "def f():\n\treturn 1\n" * 20]
    together = engine.encode(texts)
    for index, text in enumerate(texts):
        alone = engine.encode((text,))
        assert together.ids[together.offsets[index] : together.offsets[index + 1]].tolist() == alone.ids.tolist()


def test_control_strings_inside_text_are_text(engine: Engine) -> None:
    ids = engine.encode(["a<|endoftext|>b <|user|><think>"]).ids.tolist()
    assert ids.index(SPEC.eos_id) == len(ids) - 1
    assert len(ids) > 10


def test_an_added_word_that_is_not_special_is_one_id(engine: Engine) -> None:
    assert len(engine.encode(["zyzzyva"]).ids) == 1 + len(["its EOS"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=6))
def test_both_engines_give_equal_ids_for_any_text(texts: list[str]) -> None:
    fast, right = (
        FastokensEngine(*RIGHT).encode(texts),
        HuggingFaceEngine(*RIGHT).encode(texts),
    )
    assert fast.ids.tolist() == right.ids.tolist()
    assert fast.offsets.tolist() == right.offsets.tolist()


def test_one_document_in_check_every_is_checked_whatever_the_batches() -> None:
    texts = [f"document {number}" for number in range(100)]
    checked = []
    for batch in (1, 7, 100):
        reference = Counting()
        engine = CheckedEngine(Counting(), partial(_given, reference), 10, lambda _: None)
        for at in range(0, 100, batch):
            engine.encode(texts[at : at + batch])
        checked.append(reference.seen)
    assert checked[0] == checked[1] == texts[9::10]
    assert checked[2] == [texts[9]]  # at most one of a call, so that what a call costs stays bounded


def test_the_reference_is_built_at_the_first_check_only() -> None:
    built: list[Engine] = []

    def build() -> Engine:
        built.append(Counting())
        return built[-1]

    engine = CheckedEngine(Counting(), build, 3, lambda _: None)
    engine.encode(["a", "b"])
    assert not built
    for _ in range(3):
        engine.encode(["c"] * 7)
    assert len(built) == 1


def test_a_long_or_empty_document_passes_the_check_on_to_the_next() -> None:
    reference = Counting()
    engine = CheckedEngine(Counting(), lambda: reference, 2, lambda _: None)
    engine.encode(["first", "x" * 70_000, ""])
    assert reference.seen == []
    engine.encode(["", "y" * 70_000, "short"])
    assert reference.seen == ["short"]


def test_a_wrong_id_is_an_error_that_names_it_after_it_was_recorded() -> None:
    recorded: list[str] = []
    engine = CheckedEngine(Wrong(), lambda: HuggingFaceEngine(*RIGHT), 4, recorded.append)
    engine.encode(["wrong but not due", "b", "c", "d"])
    with pytest.raises(EngineError, match=r"ids differ from index \d+ on.*next start uses Hugging Face"):
        engine.encode(["e", "f", "g", "this is wrong"])
    assert len(recorded) == 1
    assert "this is wrong" in recorded[0]


def test_the_verdict_decides_which_engine_is_built(caplog: pytest.LogCaptureFixture) -> None:
    spec = SPEC
    with caplog.at_level(logging.DEBUG, "streamfeed.encode"):
        fast = build_engine(spec, Verdict("fastokens", "equal"))
        right = build_engine(spec, Verdict("huggingface", "unsupported"))
    assert (fast.name, right.name) == ("fastokens", "huggingface")
    assert isinstance(fast, CheckedEngine)
    assert fast.encode(["a b"]).ids.tolist() == right.encode(["a b"]).ids.tolist()
    assert "unsupported" in caplog.text


@pytest.mark.parametrize(
    ("engine_name", "workers", "cores", "threads"),
    [
        ("fastokens", 2, 16, 1),
        ("huggingface", 1, 16, 16),
        ("huggingface", 4, 16, 4),
        ("huggingface", 3, 16, 5),
        ("huggingface", 8, 2, 1),
        ("huggingface", 0, 2, 2),
    ],
)
def test_threads_share_the_cores_where_the_engine_is_slow_and_a_log_line_says_so(
    engine_name: Literal["fastokens", "huggingface"],
    workers: int,
    cores: int,
    threads: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "streamfeed.encode"):
        assert engine_threads(Verdict(engine_name, "the reason"), workers, cores) == threads
    assert [f"{threads} thread" in record.message for record in caplog.records] == [True]
    assert ("the reason" in caplog.text) == (engine_name == "huggingface")


HASH = """
import sys
from pathlib import Path
from streamfeed.encode.frame import Frame
from streamfeed.encode.huggingface import HuggingFaceEngine
source = Path(sys.argv[1]).read_text(encoding="utf-8")
encoded = HuggingFaceEngine(source, Frame(None, 0)).encode([source[at : at + 500] for at in range(0, 60_000, 500)])
print(encoded.ids.tobytes().hex(), encoded.offsets.tolist())
"""


@pytest.mark.processes
def test_ids_do_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    source = tmp_path / "tokenizer.json"
    source.write_text(SPEC.json, encoding="utf-8")
    found = {
        subprocess.run(
            [sys.executable, "-c", HASH, str(source)],
            env=os.environ | thread_environment(threads),
            capture_output=True,
            check=True,
        ).stdout
        for threads in (1, 2)
    }
    assert len(found) == 1
