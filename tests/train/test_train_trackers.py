"""Trackers: what TensorBoard shows is what metrics.jsonl says, and no tracker stops a run."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from tensorboard.summary.writer import event_file_writer

from streamfeed.errors import ConfigError, StreamfeedError
from streamfeed.train import loop, trackers
from streamfeed.train.cli import plan
from streamfeed.train.flags import to_yaml
from streamfeed.train.metrics import read_metrics
from streamfeed.train.progress import Reporter
from streamfeed.train.trackers import chosen_names, settings_of
from tests.train.fake_stream import FakeLoader

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE = """
data: {uri: rows, tokenizer: fake, seq_len: 16}
loader: {batch_size: 2, num_workers: 0}
model: {hidden_size: 16, num_layers: 1, num_heads: 2, intermediate_size: 32}
train: {global_batch_size: 4, max_steps: 9, lr: 0.01, warmup_steps: 2, checkpoint_every: 3, log_every: 2}
"""

pytestmark = pytest.mark.usefixtures("fake_rows")


def run(folder: str, *words: str) -> dict[str, Any]:
    settled = plan(["--config", "base.yaml", "--train.output_dir", folder, *words])
    return loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)))


def shown(folder: str) -> dict[str, list[tuple[int, float]]]:
    """Return what TensorBoard shows: for each figure its values by step."""
    events = EventAccumulator(f"{folder}/tensorboard").Reload()
    return {name: [(one.step, one.value) for one in events.Scalars(name)] for name in events.Tags()["scalars"]}


def logged(folder: str) -> dict[str, list[tuple[int, object]]]:
    """Return the same of ``metrics.jsonl``, with the precision that TensorBoard has."""
    figures: dict[str, list[tuple[int, object]]] = {}
    for line in read_metrics(Path(folder, "metrics.jsonl")):
        for name, value in line.items():
            if name != "step" and not isinstance(value, str):
                figures.setdefault(name, []).append((line["step"], pytest.approx(value, rel=1e-6)))
    return figures


class Remembering(GeneralTracker):  # type: ignore[misc]
    """Keeps what it is told; fails where it is asked to."""

    name = "remembering"
    requires_logging_directory = False
    failing: ClassVar[str] = ""
    told: ClassVar[list[tuple[str, Any]]] = []

    def __init__(self, project: str) -> None:
        self._note("made", (project, list(sys.argv)))
        super().__init__()

    @property
    def tracker(self) -> str:
        return "its own object"

    def start(self) -> None:
        self._note("start", None)

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._note("settings", values)

    def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
        self._note("log", (step, values))

    def finish(self) -> None:
        self._note("finish", None)

    def _note(self, what: str, value: Any) -> None:
        Remembering.told.append((what, value))
        if what == Remembering.failing:
            raise ConnectionError("no way\nto the server")


@pytest.fixture(autouse=True)
def _files_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one second and process are read in the order of a number at the end of their names, as text."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(100))


@pytest.fixture
def remembering(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Remembering]]:
    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "remembering", Remembering)
    Remembering.told.clear()
    yield Remembering
    Remembering.failing = ""


def test_tensorboard_shows_all_figures_of_metrics_jsonl_and_is_there_without_being_asked_for() -> None:
    run("one", "--eval.uri", "held", "--eval.every", "3")
    assert shown("one") == logged("one")
    assert {"loss", "lr", "tokens", "tokens_per_s", "data_wait_pct", "grad_norm", "eval_loss"} <= set(shown("one"))
    assert [step for step, _ in shown("one")["eval_loss"]] == [3, 6, 9]


def killed_at(step: int, folder: str, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    """Run until the data of ``step`` is asked for, then stop as if the power had gone."""
    whole = FakeLoader.__iter__

    def stops(self: FakeLoader) -> Iterator[Any]:
        for batch in whole(self):
            if self._row > (step - 1) * 4:
                raise KeyboardInterrupt
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(FakeLoader, "__iter__", stops)
        with pytest.raises(KeyboardInterrupt):
            run(folder, *words)


def test_a_resume_goes_on_in_the_same_curves_and_steps_trained_again_are_shown_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = ("--train.log_every", "1", "--train.lr", "0.02")
    killed_at(6, "killed", monkeypatch, *lost)
    assert [step for step, _ in shown("killed")["loss"]] == [1, 2, 3, 4, 5]
    with min(Path("killed/tensorboard").iterdir()).open("ab") as torn:
        torn.write(b"\x18\0\0\0\0")
    run("killed", "--train.log_every", "1", "--resume", "latest")
    assert shown("killed") == logged("killed")
    assert [step for step, _ in shown("killed")["loss"]] == list(range(1, 10))
    run("killed", "--train.max_steps", "11", "--resume", "latest")
    assert shown("killed") == logged("killed")


def test_a_resume_from_an_earlier_checkpoint_hides_the_branch_that_it_leaves() -> None:
    run("branch")
    settled = plan(["--resume", "branch/checkpoints/step-000003", "--train.max_steps", "5"])
    loop.train(settled.config, settled.run, settled.start, Reporter(Console(quiet=True)))
    assert shown("branch") == logged("branch")
    assert [step for step, _ in shown("branch")["loss"]] == [1, 2, 4, 5]


def test_tensorboard_has_the_settings_in_the_same_run_as_the_figures() -> None:
    run("one")
    assert {path.parent.name for path in Path("one/tensorboard").rglob("*") if path.is_file()} == {"tensorboard"}
    content = EventAccumulator("one/tensorboard").Reload().SummaryMetadata("_hparams_/session_start_info").plugin_data
    values = HParamsPluginData.FromString(content.content).session_start_info.hparams
    assert values["train.lr"].number_value == 0.01
    assert values["data.uri"].string_value == "rows"
    assert values["model.tie_embeddings"].number_value == 1


def test_any_tracker_of_accelerate_gets_settings_figures_and_an_end(remembering: type[Remembering]) -> None:
    run("one", "--train.trackers", "remembering,tensorboard", "--train.max_steps", "2")
    assert [what for what, _ in remembering.told] == ["made", "start", "settings", "log", "log", "finish"]
    assert remembering.told[0][1] == ("streamfeed", sys.argv[:1]), "the command line may hold keys"
    assert remembering.told[2][1]["train.lr"] == 0.01
    lines = read_metrics(Path("one/metrics.jsonl"))
    assert [value for what, value in remembering.told if what == "log"] == [
        (line["step"], {name: value for name, value in line.items() if name not in {"step", "bottleneck"}})
        for line in lines
    ]
    assert shown("one") == logged("one")


@pytest.mark.parametrize("failing", ["made", "start", "settings", "log", "finish"])
def test_a_tracker_that_fails_is_left_out_with_one_warning_and_the_others_go_on(
    failing: str, remembering: type[Remembering], caplog: pytest.LogCaptureFixture
) -> None:
    remembering.failing = failing
    assert run("one", "--train.trackers", "remembering,tensorboard", "--train.max_steps", "4")["step"] == 4
    assert [what for what, _ in remembering.told].count(failing) == 1
    assert remembering.told[-1][0] == failing
    (said,) = [record.message for record in caplog.records if "tracker" in record.message]
    assert said.startswith("the tracker remembering failed and gets no more figures (ConnectionError: no way to the ")
    assert shown("one") == logged("one")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # tensorboard's thread says it, too
def test_a_disk_without_room_for_tensorboard_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As the system says it: the events have no room, everything else has."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = trackers.Guarded.log

    def full(self: trackers.Guarded, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            log(self, values, step, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    monkeypatch.setattr(trackers.Guarded, "log", full)
    assert run("full")["step"] == 9
    assert caplog.text.count("the tracker tensorboard failed and gets no more figures (OSError: [Errno 27]") == 1
    assert [line["step"] for line in read_metrics(Path("full/metrics.jsonl"))] == [1, 2, 4, 6, 8, 9]


def test_a_run_that_fails_before_its_first_figures_leaves_nothing_of_a_tracker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed_at(1, "one", monkeypatch)
    assert sorted(path.name for path in Path("one").iterdir()) == ["config.yaml", "metrics.jsonl"]
    assert run("one", "--train.max_steps", "1")["step"] == 1


def test_no_secret_is_in_any_file_of_the_run_or_told_to_a_tracker(remembering: type[Remembering]) -> None:
    options = '{"key": "hush", "secret": "hush"}'
    run(
        *("one", "--data.uri", "https://me:hush@host/x.jsonl?sig=hush", "--data.storage_options", options),
        *("--eval.uri", "https://host/held.jsonl?sig=hush", "--train.max_steps", "1"),
        *("--train.trackers", "remembering,tensorboard"),
    )
    files = [path for path in Path("one").rglob("*") if path.is_file()]
    assert len(files) > 8
    assert [path for path in files if b"hush" in path.read_bytes()] == []
    assert "hush" not in repr(remembering.told)


def test_a_resume_goes_on_in_the_same_run_of_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any]]] = []

    class Wandb(Remembering):
        def __init__(self, project: str, **options: Any) -> None:
            made.append((project, options))

    monkeypatch.setitem(LOGGER_TYPE_TO_CLASS, "wandb", Wandb)
    monkeypatch.setattr(trackers, "get_available_trackers", lambda: ["wandb"])
    for steps, words in ((1, ()), (2, ("--resume", "latest"))):
        run("one", "--train.trackers", "wandb", "--train.max_steps", str(steps), *words)
    run("two", "--train.trackers", "wandb", "--train.max_steps", "1")
    assert made[0] == made[1]
    assert {"name": "one", "dir": "one", "resume": "allow"}.items() <= made[0][1].items()
    assert made[0][1]["id"] != made[2][1]["id"]


def test_settings_are_those_of_config_yaml_flat_and_of_plain_types() -> None:
    config = plan(["--config", "base.yaml"]).config
    found = settings_of(config)
    assert {type(value) for value in found.values()} <= {bool, int, float, str}
    assert (found["train.lr"], found["data.retry.attempts"], found["data.objective"]) == (0.01, 8, "lm")
    assert "train.max_tokens" not in found, "what is left out"
    assert "train.max_steps: 9" in to_yaml(config).replace("  max", "train.max")
    Path("two.yaml").write_text("data: {sources: [{uri: [a, b], storage_options: {key: hush}}], tokenizer: t}")
    (source,) = json.loads(str(settings_of(plan(["--config", "two.yaml"]).config)["data.sources"]))
    assert source["uri"] == ["a", "b"]
    assert "storage_options" not in source


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("auto", ["tensorboard"]),
        ("none", []),
        ([], []),
        ("remembering, tensorboard,", ["remembering", "tensorboard"]),
        (["tensorboard", "remembering", "tensorboard"], ["tensorboard", "remembering"]),
        ("all", ["tensorboard", "remembering"]),
    ],
)
def test_trackers_are_chosen_by_name(asked: str | list[str], names: list[str], remembering: type[Remembering]) -> None:
    assert chosen_names(asked) == names


def test_without_tensorboard_none_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "get_available_trackers", list)
    assert chosen_names("auto") == []
    run("one", "--train.max_steps", "1")
    assert not Path("one/tensorboard").exists()
    with pytest.raises(ConfigError, match="tensorboard is not installed; installed here: none of them"):
        run("two", "--train.trackers", "tensorboard")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "tensorbord",
            r"there is no 'tensorbord'; the nearest is tensorboard \(there are .*wandb.*; installed here: tensor",
        ),
        ("wandb", "wandb is not installed; installed here: tensorboard"),
        ('["tensorboard", "mlfow"]', "there is no 'mlfow'; the nearest is mlflow"),
        ("auto,tensorboard", "auto stands alone"),
        ("[none, tensorboard]", "none stands alone"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_data_is_read(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "get_available_trackers", lambda: ["tensorboard"])
    with pytest.raises(ConfigError, match=message):
        run("one", "--train.trackers", words)
    assert not Path("one").exists()
    assert FakeLoader.handed_out == []


def test_a_list_of_names_in_a_file_is_read_saved_and_read_again() -> None:
    Path("base.yaml").write_text(BASE.replace("log_every: 2", "trackers: [tensorboard]"))
    run("one", "--train.max_steps", "1")
    assert plan(["--resume", "one"]).config.train.trackers == ["tensorboard"]


def test_a_run_that_fails_ends_its_trackers(remembering: type[Remembering]) -> None:
    with pytest.raises(StreamfeedError, match="the loss is"):
        run(
            *("wild", "--train.lr", "1e30", "--train.clip", "0", "--train.warmup_steps", "0"),
            *("--train.trackers", "remembering", "--train.log_every", "1"),
        )
    assert remembering.told[-1] == ("finish", None)
