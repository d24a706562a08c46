"""Fixtures that the whole suite shares."""

from __future__ import annotations

import tests.servers.hub_environment  # isort: skip - the Hub that transformers and datasets see
import tests.one_thread  # noqa: F401  # isort: skip - read when torch is loaded

import gc
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import settings
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from streamfeed.encode.engines import build_engine
from streamfeed.encode.objectives.build import verdict_for
from streamfeed.encode.spec import tokenizer_spec
from streamfeed.encode.tokenizer import load_tokenizer
from tests.remembering import RememberingEngine
from tests.tokenizers_for_tests import build_bpe

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.protocol import Engine
    from streamfeed.encode.tokenizer import TokenizerSpec

pytest_plugins = ("tests.servers.fixtures", "tests.distributed.fixtures")

# The same examples on every run, on machines of any speed.
settings.register_profile("suite", max_examples=40, derandomize=True, deadline=None, database=None)
settings.load_profile("suite")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs CUDA")


def pytest_collection_finish() -> None:
    """Leave what imports have made out of every later search for garbage, which takes most of a second with it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small byte-level BPE that transformers loads."""
    return build_bpe(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder: Path) -> PreTrainedTokenizerBase:
    """The same, loaded once; its EOS is id 0."""
    return AutoTokenizer.from_pretrained(tokenizer_folder)


@pytest.fixture(scope="session")
def spec_of_tokenizer(tokenizer: PreTrainedTokenizerBase) -> TokenizerSpec:
    """What a loader knows of that tokenizer."""
    return load_tokenizer(tokenizer)


@cache
def _engine(spec: TokenizerSpec, verdict: Verdict) -> Engine:
    return RememberingEngine(build_engine(spec, verdict))


_verdict = cache(verdict_for)


@cache
def _spec(name: str, cache_dir: Path | None) -> TokenizerSpec:
    return tokenizer_spec(name, cache_dir)


@pytest.fixture
def one_engine(
    monkeypatch: pytest.MonkeyPatch, tokenizer: PreTrainedTokenizerBase, spec_of_tokenizer: TokenizerSpec
) -> None:
    """Load a tokenizer, prove it, build its engine and encode a text once for all the loaders of this process.

    It is most of what they cost.
    """

    def spec(of: object, cache_dir: Path | None) -> TokenizerSpec:
        if of is tokenizer:
            return spec_of_tokenizer
        return _spec(of, cache_dir) if isinstance(of, str) else tokenizer_spec(of, cache_dir)

    monkeypatch.setattr("streamfeed.dataset.resolve.tokenizer_spec", spec)
    for module in ("loader", "stream_dataset"):
        monkeypatch.setattr(f"streamfeed.loader.{module}.verdict_for", _verdict)
    build = "streamfeed.encode.objectives.build.build_engine"
    monkeypatch.setattr(build, lambda spec, verdict, **_: _engine(spec, verdict))
