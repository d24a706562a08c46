"""Fixtures that the whole suite shares."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest
from tests.tokenizers_for_tests import build_bpe
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from streamfeed.encode.engines import build_engine
from streamfeed.encode.proof import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.encode.protocol import Engine
    from streamfeed.encode.tokenizer import TokenizerSpec


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small byte-level BPE that transformers loads."""
    return build_bpe(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> PreTrainedTokenizerBase:
    """The same, loaded once; its EOS is id 0."""
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@cache
def _engine(spec: TokenizerSpec, verdict: Verdict) -> Engine:
    return build_engine(spec, verdict)


@pytest.fixture
def one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build a tokenizer's engine once for all the loaders of a test in this process: it is most of what they cost."""
    monkeypatch.setattr("streamfeed.loader.job.build_engine", lambda spec, verdict, **_: _engine(spec, verdict))
