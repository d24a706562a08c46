"""What all tests of the main job share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from streamfeed.train import evaluate, loop
from tests.train.fake_stream import FakeLoader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """On so small a model threads only wait for each other, for seconds where the machine has other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def fake_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Train on rows from nothing, in a folder that holds the settings of the test file, ``BASE``, as ``base.yaml``."""
    monkeypatch.setattr(loop, "StreamLoader", FakeLoader)
    monkeypatch.setattr(evaluate, "StreamLoader", FakeLoader)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(request.module.BASE)
    FakeLoader.handed_out.clear()
    yield
    torch.use_deterministic_algorithms(False)
