"""The main job on several ranks: the same losses, gradients and ends, whatever happens to the ranks on the way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from safetensors.torch import load_file

from streamfeed.train.metrics import read_metrics
from tests.tokenizers_for_tests import standard_library_texts

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from tests.distributed.pool import RankPool

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

BASE: dict[str, object] = {
    "data.uri": "corpus/*.jsonl",
    "data.seq_len": 32,
    "data.shuffle_buffer": 16,
    "loader.num_workers": 0,
    "model.hidden_size": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.intermediate_size": 32,
    "train.global_batch_size": 8,
    "train.max_steps": 12,
    "train.warmup_steps": 3,
    "train.checkpoint_every": 4,
    "train.log_every": 1,
    "train.lr": 0.01,
}


class Runs:
    """Runs of the main job over one small corpus, on any number of ranks."""

    def __init__(self, folder: Path, tokenizer: Path, pool: RankPool) -> None:
        self.folder, self._tokenizer, self._pool, self._count = folder, tokenizer, pool, 0
        (folder / "corpus").mkdir()
        for shard, count in enumerate((30, 11, 25, 7)):
            texts = standard_library_texts()[40 * shard : 40 * shard + count]
            lines = [json.dumps({"text": text[:400], "key": index}) for index, text in enumerate(texts)]
            (folder / "corpus" / f"{shard}.jsonl").write_text("\n".join(lines) + "\n")

    def run(
        self, name: str, ranks: int, batch: int, *, accident: dict[str, Any] | None = None, **flags: object
    ) -> list[int]:
        """Run or resume ``name``; return how each rank ended: its exit code, or minus the signal that killed it."""
        self._count += 1
        asked = BASE | {"loader.batch_size": batch, "train.output_dir": name, "data.tokenizer": self._tokenizer}
        asked |= {flag.replace("__", "."): value for flag, value in flags.items()}
        words = [f"--{flag}={value}" for flag, value in asked.items() if value is not None] + ["--resume=latest"]
        place = self.folder / f"job-{self._count}"
        job = self._pool.start(
            place,
            "tests.distributed.training:run",
            ranks,
            arguments={"folder": str(self.folder), "words": words, "accident": accident},
        )
        codes = job.codes()
        self.said = [job.log(rank) for rank in range(ranks)]
        files = [place / f"rank-{rank}.json" for rank in range(ranks)]
        return [
            json.loads(file.read_text()) if file.exists() else code for file, code in zip(files, codes, strict=True)
        ]

    def lines(self, name: str, *columns: str) -> list[list[Any]]:
        """Return some figures of every logged step."""
        return [[line.get(column) for column in columns] for line in read_metrics(self.folder / name / "metrics.jsonl")]

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        """Return the weights of the last checkpoint."""
        return load_file(max((self.folder / name / "checkpoints").glob("step-*")) / "model.safetensors")

    def apart(self, one: str, other: str) -> float:
        """Return the largest difference between two runs' weights."""
        first, second = self.weights(one), self.weights(other)
        assert first.keys() == second.keys()
        return max(float((second[name] - weight).abs().max()) for name, weight in first.items())


@pytest.fixture
def runs(tmp_path: Path, tokenizer_folder: Path, rank_pool: RankPool) -> Runs:
    return Runs(tmp_path, tokenizer_folder, rank_pool)


def test_losses_gradients_and_weights_are_those_of_one_rank_however_a_step_is_divided(runs: Runs) -> None:
    assert runs.run("one", 1, 8) == [0]
    reference = runs.lines("one", "step", "loss", "grad_norm", "tokens")
    for ranks, batch, parallel in ((1, 1, "ddp"), (2, 4, "ddp"), (2, 1, "ddp"), (4, 1, "ddp"), (2, 2, "fsdp")):
        name = f"{ranks}-{batch}-{parallel}"
        assert runs.run(name, ranks, batch, train__parallel=parallel) == [0] * ranks, runs.said
        for found, wanted in zip(runs.lines(name, "step", "loss", "grad_norm", "tokens"), reference, strict=True):
            assert found == pytest.approx(wanted, rel=1e-4), name
        assert runs.apart("one", name) < 1e-4, name


def test_a_resume_goes_on_on_other_ranks_micro_batches_and_ways_to_hold_the_model(runs: Runs) -> None:
    assert runs.run("straight", 1, 8) == [0]
    for step, (ranks, batch, parallel) in zip((4, 8, 12), ((2, 2, "fsdp"), (4, 1, "ddp"), (2, 4, "fsdp")), strict=True):
        # The rate is that of a run of 12 steps from the beginning: the run is cut by a signal, not by its length.
        accident = {"what": "signal", "where": "step", "count": 4, "rank": None} if step < 12 else None
        codes = runs.run("moved", ranks, batch, train__parallel=parallel, accident=accident)
        assert codes == [143 if step < 12 else 0] * ranks, runs.said
    assert runs.lines("moved", "step", "tokens") == runs.lines("straight", "step", "tokens")
    assert runs.apart("moved", "straight") < 1e-4


@pytest.mark.parametrize("epochs", [None, 1])
def test_a_signal_to_one_rank_while_it_waits_for_data_stops_all_with_everything_saved(
    epochs: int | None, runs: Runs
) -> None:
    common: dict[str, Any] = {
        "data__epochs": epochs,
        "train__max_steps": None if epochs else 12,
        "train__lr_schedule": "constant",
    }
    assert runs.run("straight", 2, 2, **common) == [0, 0], runs.said
    accident = {"what": "signal", "where": "batch", "count": 12, "rank": 1}
    assert runs.run("asked", 2, 2, accident=accident, **common) == [143, 143], runs.said
    assert "stopped by SIGTERM" in runs.said[0]
    assert "step-000005" in {path.name for path in (runs.folder / "asked/checkpoints").iterdir()}
    assert runs.run("asked", 2, 2, **common) == [0, 0]
    assert runs.lines("asked", "step", "loss") == runs.lines("straight", "step", "loss")
    assert runs.apart("asked", "straight") == 0.0


def test_killed_at_random_moments_and_in_a_save_it_ends_the_same_to_the_bit(runs: Runs) -> None:
    assert runs.run("straight", 2, 2, model__dropout=0.1) == [0, 0], runs.said
    accidents: list[tuple[int | None, dict[str, Any]]] = [
        (0, {"where": "save", "count": 1}),
        (None, {"where": "time", "seed": 1, "most": 1.0}),
        (1, {"where": "batch", "count": 9}),
    ]
    for rank, where in accidents:
        accident = {"what": "kill", "rank": rank, **where}
        codes = runs.run("killed", 2, 2, model__dropout=0.1, accident=accident)
        # The other rank hears of it, and ends.
        assert codes == [-9 if rank in {None, one} else 1 for one in range(2)], (accident, runs.said)
    assert runs.run("killed", 2, 2, model__dropout=0.1) == [0, 0]
    assert runs.lines("killed", "step", "loss") == runs.lines("straight", "step", "loss")
    assert runs.apart("killed", "straight") == 0.0


def test_a_rank_that_cannot_start_stops_all_and_its_message_is_said_once(runs: Runs) -> None:
    codes = runs.run("never", 3, 1, train__global_batch_size=3, accident={"what": "fail", "where": "model", "rank": 2})
    assert codes[:2] == [1, 1]
    assert "rank 2 failed: OSError: [Errno 28] No space left on device" in runs.said[0]
    assert "No space left" not in runs.said[1]


def test_a_checkpoint_that_cannot_be_written_stops_all_and_leaves_those_before_it(runs: Runs) -> None:
    codes = runs.run("full", 2, 2, accident={"what": "fail", "where": "save", "count": 2, "rank": 0})
    assert codes == [1, 1]
    assert "the checkpoint of step 8 cannot be written" in runs.said[0]
    assert sorted(path.name for path in (runs.folder / "full/checkpoints").iterdir()) == ["step-000004"]
    assert runs.run("full", 2, 2) == [0, 0]


def test_a_finite_run_has_the_same_steps_and_rates_on_any_ranks(runs: Runs) -> None:
    finite: dict[str, Any] = {"data__epochs": 2, "train__max_steps": None, "train__checkpoint_every": 0}
    assert runs.run("one", 1, 4, **finite) == [0], runs.said
    reference = runs.lines("one", "step", "lr", "tokens")
    assert reference[-1][1] < 0.1 * 0.01 * 1.5, "the rate has come down to its end"
    for ranks, batch in ((2, 2), (4, 2)):
        assert runs.run(f"{ranks}", ranks, batch, **finite) == [0] * ranks, runs.said
        assert runs.lines(f"{ranks}", "step", "lr", "tokens") == reference


def test_the_summary_tells_of_the_data_of_all_ranks_and_how_to_go_on_on_as_many(runs: Runs) -> None:
    (runs.folder / "corpus" / "null.jsonl").write_text('{"text": null}\n' * 9)
    finite: dict[str, Any] = {"data__epochs": 1, "train__max_steps": None, "train__lr_schedule": "constant"}
    finite |= {"data__lanes": 4}
    told = {}
    for ranks in (1, 2, 3):
        assert runs.run(f"{ranks}", ranks, 1, train__global_batch_size=6, **finite) == [0] * ranks, runs.said
        summary = json.loads((runs.folder / f"{ranks}" / "summary.json").read_text())
        assert "9 null" in summary["not_trained_on"]
        told[ranks] = summary["not_trained_on"]
        launcher = "python" if ranks == 1 else f"torchrun --nproc-per-node {ranks}"
        assert summary["resume"].startswith(f"{launcher} -m streamfeed.train")
    assert told[2].split(",")[0] == told[3].split(",")[0] == told[1].split(",")[0]


def test_three_records_on_three_ranks_give_the_score_of_one(runs: Runs) -> None:
    texts = standard_library_texts()[:3]
    (runs.folder / "held.jsonl").write_text("".join(json.dumps({"text": text[:60]}) + "\n" for text in texts))
    common: dict[str, Any] = {
        "eval__uri": "held.jsonl",
        "train__max_steps": 2,
        "eval__every": 1,
        "train__global_batch_size": 6,
    }
    assert runs.run("one", 1, 6, **common) == [0], runs.said
    assert runs.run("three", 3, 2, **common) == [0, 0, 0], runs.said
    one, three = (
        [line for line in runs.lines(name, "step", "eval_labels", "eval_loss") if line[1]] for name in ("one", "three")
    )
    assert len(one) == len(three) == 2
    for found, wanted in zip(three, one, strict=True):
        assert found == pytest.approx(wanted, rel=1e-5)


def test_a_signal_in_an_evaluation_leaves_it_on_all_ranks(runs: Runs) -> None:
    common: dict[str, Any] = {"eval__uri": "corpus/1.jsonl", "eval__every": 3}
    accident = {"what": "signal", "where": "evaluation", "count": 1, "rank": 1}
    assert runs.run("asked", 2, 2, accident=accident, **common) == [143, 143], runs.said
    assert max(path.name for path in (runs.folder / "asked/checkpoints").iterdir()) == "step-000003"


def test_the_first_rank_alone_imports_a_tracker_and_writes_its_files(runs: Runs) -> None:
    assert runs.run("tracked", 2, 2, train__max_steps=2) == [0, 0], runs.said
    assert ["without tensorboard" in said for said in runs.said] == [False, True]
    (first,) = {path.name.split(".")[-2] for path in (runs.folder / "tracked/tensorboard").iterdir()}
    assert first.isdigit(), "one process has written"
    assert runs.run("untracked", 2, 2, train__max_steps=1, train__trackers="none") == [0, 0], runs.said
    assert all("without tensorboard" in said for said in runs.said)
    assert not (runs.folder / "untracked/tensorboard").exists()
