"""The script that measures a GPU: it runs on a CPU as far as that goes, and says what it needs."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parent.parent / "scripts" / "bench_gpu.py"
SMALL = "--megabytes 1 --workers 0 --batch-size 2 --seq-len 32 --hidden 16 --layers 1 --heads 2 --steps 2 --warmup 1"


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([]) == 2
    said = capsys.readouterr().out
    assert "PyTorch finds none" in said
    assert "--device cpu" in said


def test_it_runs_on_a_cpu(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SMALL.split(), "--device", "cpu", "--rounds", "2", "--folder", str(tmp_path)]
    assert script.main([*words, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(result["ways"]) == ["resident", "to()", "prefetched"]
    for row in result["ways"].values():
        assert row["tokens_per_s"] == pytest.approx(64 / row["step_s"])
        assert row["data_wait_pct"] < 100
    assert result["ways"]["resident"]["data_wait_pct"] == 0
    assert result["settings"]["seq_len"] == 32
    script.show(result)
    assert "data wait %" in capsys.readouterr().out
