"""What all tests of the main job share."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch

from streamfeed.train import evaluate, loop
from tests.train.fake_stream import FakeLoader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def fake_rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Train on rows from nothing, in a folder that holds the settings of the test file, ``BASE``, as ``base.yaml``."""
    with rows_from_nothing(tmp_path, request.module.BASE):
        yield


@contextmanager
def rows_from_nothing(folder: Path, settings: str) -> Iterator[None]:
    """Train on rows from nothing in ``folder``, which gets ``settings`` as ``base.yaml``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "StreamLoader", FakeLoader)
        patch.setattr(evaluate, "StreamLoader", FakeLoader)
        patch.chdir(folder)
        (folder / "base.yaml").write_text(settings)
        FakeLoader.handed_out.clear()
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(False)
