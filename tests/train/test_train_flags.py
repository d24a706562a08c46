from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from streamfeed import RetryPolicy
from streamfeed.errors import ConfigError
from streamfeed.objectives import Chat, Classification, Lm, Mlm, PromptCompletion
from streamfeed.train.cli import main, plan
from streamfeed.train.config import DataConfig, RunConfig, SourceConfig
from streamfeed.train.flags import Arguments, _settings, parse, to_yaml

DATA = ["--data.uri", "x.jsonl", "--data.tokenizer", "gpt2"]
HUB = ("--data.uri", "hf://datasets/org/name", "--data.tokenizer", "gpt2")


def read(*words: str) -> RunConfig:
    return parse(Arguments.split(words))


def write(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("typo", "near"),
    [
        ("--data.seq_length", "--data.seq_len"),
        ("--train.max-steps", "--train.max_steps"),
        ("--lr", "--train.lr"),
        ("--model.hiden_size", "--model.hidden_size"),
        ("--resum", "--resume"),
        ("--data.seqlen", "--data.seq_len"),
    ],
)
def test_a_typo_in_a_flag_is_refused_and_names_the_nearest(typo: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"no flag {typo}; the nearest is {near}$"):
        read(typo, "3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {seq_length: 3}", "no key data.seq_length; the nearest is data.seq_len"),
        ("trian: {lr: 1}", "no key trian; the nearest is train"),
        ("data: {sources: [{uri: a, wieght: 2}]}", r"no key data.sources\[0\].wieght; the nearest is weight"),
        ("data.seq_len: 3", "data.seq_len must be nested"),
        ("- data", "expected keys"),
        ("data: {", "is no YAML"),
    ],
)
def test_a_typo_in_a_yaml_key_is_refused_and_names_the_nearest(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read("--config", write(tmp_path, text))


def test_a_typo_in_a_source_given_as_a_flag_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no key weigt; the nearest is weight"):
        read("--data.sources", "[{uri: a, weigt: 2}]")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.seq_len", "long"], "data.seq_len: expected int, got: long"),
        (["--data.seq_len", "2.5"], "data.seq_len: expected int, got: 2.5"),
        (["--data.lanes", "many"], "data.lanes: expected one of int, Literal.'auto'., got many"),
        (["--train.precision", "fp8"], "train.precision: expected Literal.*fp16.*got: fp8"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--config"], "--config needs"),
        (["stray"], "unrecognized arguments: stray"),
    ],
)
def test_a_wrong_value_is_one_clear_line(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read(*words)
    assert "\n" not in str(error.value)


def test_flags_win_over_the_file_wherever_they_stand_and_the_file_over_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, "train: {lr: 0.5, max_steps: 7}\ndata: {uri: from-file}")
    for words in (["--config", file, "--train.lr", "0.25"], ["--train.lr=0.25", f"--config={file}"]):
        config = read(*words)
        assert (config.train.lr, config.train.max_steps, config.data.uri) == (0.25, 7, "from-file")
        assert config.train.warmup_steps == RunConfig().train.warmup_steps
    below = parse(Arguments.split(["--config", file]), {"train.max_steps": 3, "data.seq_len": 99})
    assert (below.train.max_steps, below.data.seq_len) == (7, 99)


def test_uri_may_be_one_or_a_list() -> None:
    assert read("--data.uri", "a/{00..09}.tar").data.uri == "a/{00..09}.tar"
    assert read("--data.uri", "[a.tar, b.jsonl]").data.uri == ["a.tar", "b.jsonl"]


def test_sources_may_be_a_list_in_a_file(tmp_path: Path) -> None:
    file = write(
        tmp_path, "data:\n  tokenizer: t\n  sources:\n  - {uri: a, weight: 2}\n  - {uri: [b, c], text: body}\n"
    )
    data = read("--config", file).data
    assert data.sources == [SourceConfig("a", weight=2.0), SourceConfig(["b", "c"], text="body")]
    assert [source.uris for source in data.stream().sources] == [("a",), ("b", "c")]


def test_config_and_split_of_a_dataset_on_the_hub_are_flags() -> None:
    (source,) = read(*HUB, "--data.config", "en", "--data.split", "test").data.stream().sources
    assert (source.uris, source.config, source.split) == (("hf://datasets/org/name",), "en", "test")


def test_the_resolved_yaml_gives_the_same_config_again(tmp_path: Path) -> None:
    config = read(*DATA, "--train.lr", "1e-3", "--data.lanes", "7", "--data.epochs", "2", "--resume", "latest")
    again = read("--config", write(tmp_path, to_yaml(config)))
    assert again.resume is None
    assert (again.data, again.loader, again.model, again.train) == (
        config.data,
        config.loader,
        config.model,
        config.train,
    )
    assert set(yaml.safe_load(to_yaml(config))) == {"data", "loader", "model", "train", "eval"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.uri", "a"], "data.tokenizer is missing"),
        (["--data.tokenizer", "gpt2"], "data.tokenizer is given but no data"),
        ([*DATA, "--data.sources", "[{uri: b}]"], "both given"),
        ([*DATA, "--loader.batch_size", "0"], "loader.batch_size must be at least 1, got 0"),
        ([*DATA, "--train.lr", "0"], "train.lr must be positive"),
        ([*DATA, "--model.num_heads", "7"], "does not divide by model.num_heads 7"),
        ([*DATA, "--data.seq_len", "1"], "seq_len must be a whole number of at least 2"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_read(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(words)


def test_a_settings_error_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--train.learning_rate", "1"]) == 2
    assert "the nearest is --train." in capsys.readouterr().err


def test_without_data_it_is_the_demo_and_flags_win_over_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settled = plan(["--train.max_steps", "5"])
    assert settled.demo
    assert settled.run.path == Path("runs/demo-001")
    assert settled.config.train.max_steps == 5
    assert settled.config.loader.num_workers >= 1
    assert settled.config.data.uri == [f"shards/demo/*.{suffix}" for suffix in ("tar", "parquet", "jsonl.zst")]
    Path("runs/demo-007").mkdir(parents=True)
    assert plan([]).run.path == Path("runs/demo-008")


def test_several_ranks_must_be_told_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"name it with --train.output_dir"):
        plan(DATA)


def test_every_setting_has_a_help_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    shown = capsys.readouterr().out
    for name in ("--data.window_bytes", "--train.skip_rows", "--model.name_or_path", "--resume"):
        assert name in shown
    assert "documents that the whole run holds to shuffle" in shown


def test_the_data_section_reaches_the_stream_config_whole() -> None:
    data = DataConfig(uri="a", text="body", format="jsonl", tokenizer="t", seq_len=9, shuffle_buffer=3, window_bytes=5)
    stream = data.stream()
    assert (stream.sources[0].uris, stream.sources[0].text, stream.sources[0].format) == (("a",), "body", "jsonl")
    assert (stream.tokenizer, stream.seq_len, stream.shuffle_buffer, stream.window_bytes) == ("t", 9, 3, 5)


def test_storage_options_are_taken_and_saved_nowhere(tmp_path: Path) -> None:
    flag = read(
        *DATA, "--data.storage_options", '{"key": "me", "secret": "hush", "client_kwargs": {"region_name": "x"}}'
    )
    source = flag.data.stream().sources[0]
    assert source.storage_options == {"key": "me", "secret": "hush", "client_kwargs": {"region_name": "x"}}
    file = write(tmp_path, "data: {tokenizer: t, sources: [{uri: s3://b/x, storage_options: {secret: hush}}]}")
    listed = read("--config", file)
    assert listed.data.stream().sources[0].storage_options == {"secret": "hush"}
    for config in (flag, listed):
        assert "hush" not in to_yaml(config) + repr(config)
        assert "storage_options" not in to_yaml(config)
        read("--config", write(tmp_path, to_yaml(config)))


def test_storage_options_that_are_no_mapping_are_an_error_that_does_not_repeat_them() -> None:
    with pytest.raises(ConfigError, match="storage_options: expected a mapping") as caught:
        read(*DATA, "--data.storage_options", "hush")
    assert "hush" not in f"{caught.value} {caught.value.__cause__} {caught.value.__context__}"


def test_a_signed_url_is_saved_without_its_signature_and_must_be_given_again(tmp_path: Path) -> None:
    config = read("--data.uri", "https://me:hush@host/x.jsonl?sig=hush", "--data.tokenizer", "t")
    assert "hush" not in to_yaml(config)
    saved = write(tmp_path, to_yaml(config))
    with pytest.raises(ConfigError, match=r"give data\.uri"):
        read("--config", saved).data.stream()
    again = read("--config", saved, "--data.uri", "https://host/x.jsonl?sig=other")
    assert again.data.stream().sources[0].uris == ("https://host/x.jsonl?sig=other",)


def test_how_long_faults_are_borne_is_a_setting_of_all_sources(tmp_path: Path) -> None:
    config = read(*DATA, "--data.retry.attempts", "3")
    assert config.data.stream().sources[0].retry == RetryPolicy(attempts=3)
    file = write(tmp_path, "data: {tokenizer: t, sources: [{uri: a}, {uri: b}], retry: {stall_s: 5}}")
    listed = read("--config", str(file))
    assert [source.retry.stall_s for source in listed.data.stream().sources] == [5.0, 5.0]
    saved = tmp_path / "saved.yaml"
    saved.write_text(to_yaml(listed))
    assert read("--config", str(saved)).data.retry == listed.data.retry
    with pytest.raises(ConfigError, match=r"--data\.retry\.atempts; the nearest is --data\.retry\.attempts"):
        read(*DATA, "--data.retry.atempts", "3")
    with pytest.raises(ConfigError, match="attempts must be"):
        read(*DATA, "--data.retry.attempts", "0")


CLASSES = ["--data.objective", "classification", "--data.packing", "none"]


def test_an_objective_is_chosen_by_name_and_set_by_flags_of_its_name() -> None:
    assert read(*DATA).data.stream().objective == Lm()
    chat = read(*DATA, "--data.objective", "chat", "--data.chat.train_on", "all", "--data.chat.template", "{{ 1 }}")
    assert chat.data.stream().objective == Chat(train_on="all", template="{{ 1 }}")
    pair = read(*DATA, "--data.objective", "prompt_completion", "--data.prompt_completion.prompt", "question")
    assert pair.data.stream().objective == PromptCompletion(prompt="question")
    masked = read(*DATA, "--data.objective", "mlm", "--data.mlm.probability", "0.3", "--data.mlm.whole_word", "true")
    assert masked.data.stream().objective == Mlm(0.3, whole_word=True)
    classes = read(
        *DATA, *CLASSES, "--data.classification.names", "[other, same]", "--data.classification.text_pair", "b"
    )
    assert classes.data.stream().objective == Classification("b", "label", ["other", "same"])
    assert classes.data.stream().packing == "none"


@pytest.mark.parametrize("names", ["[no, yes]", "[0, 1]", "no"])
def test_words_that_yaml_takes_for_something_else_are_an_error_that_says_how_to_quote_them(
    tmp_path: Path, names: str
) -> None:
    file = write(tmp_path, f"data: {{classification: {{names: {names}}}}}")
    for words in (["--data.classification.names", names], ["--config", file]):
        with pytest.raises(
            ConfigError, match=r"""classification.names: expected .*with quotes, as in '\["no", "yes"\]'"""
        ):
            read(*DATA, *words)
    config = read(*DATA, *CLASSES, "--data.classification.names", '["no", "yes"]')
    again = read("--config", write(tmp_path, to_yaml(config)))
    assert again.data.stream().objective == Classification(names=["no", "yes"])


def test_objectives_are_saved_and_read_again(tmp_path: Path) -> None:
    config = read(*DATA, *CLASSES, "--data.classification.names", "[other, same]", "--data.group_by_length", "true")
    again = read("--config", write(tmp_path, to_yaml(config)))
    assert again.data.stream() == config.data.stream()
    assert again.data.group_by_length


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--data.chat.train_on", "all"],
            "data.chat.train_on is given, but data.objective is lm; set",
        ),
        (CLASSES, "needs data.classification.names, a list, or data.classification.classes"),
        ([*CLASSES, "--data.classification.classes", "1"], "at least 2 classes, got 1"),
        ([*CLASSES[:2], "--data.classification.classes", "2"], "one sample a row: set packing='none'"),
        (["--data.objective", "rlhf"], "data.objective: expected Literal"),
        (["--data.classification.lable", "x"], "the nearest is --data.classification.label"),
        (["--data.group_by_length", "true"], "group_by_length is for packing='none'"),
        (["--loader.pad_to_multiple_of", "0"], "loader.pad_to_multiple_of must be at least 1"),
        (["--model.attention", "flash"], "model.attention: expected Literal"),
        (["--model.attention", "flex_attention", "--model.dropout", "0.1"], "dropout does not work with .*flex_attent"),
        (["--eval.every", "5"], "neither eval.uri, which names the held-out data, nor eval.hold_out is"),
        (["--eval.uri", "x", "--eval.hold_out", "0.1"], "eval.uri and eval.hold_out are both given"),
        (["--eval.hold_out", "1.5"], "the share of a hold-out is a number between 0 and 1, got 1.5"),
        (["--eval.hold_out", "0.1", "--eval.hold_out_by", "url"], "by 'text', 'shard' or 'key:' and a field's name"),
        (["--eval.hold_out", "0.1", "--eval.text", "body"], "eval.text belongs to eval.uri"),
        (["--eval.uri", "x", "--eval.hold_out_by", "shard"], "need eval.hold_out, the share that is held out"),
        (["--eval.uri", "x", "--eval.every", "-1"], "eval.every must be at least 0"),
        (["--eval.uri", "https://host/x?***"], "give eval.uri again"),
    ],
)
def test_objectives_attention_and_scores_that_cannot_be_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan([*DATA, *words])


def test_a_typo_in_a_nested_key_of_a_file_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no key data\.mlm\.probabilty; the nearest is data\.mlm\.probability"):
        read("--config", write(tmp_path, "data: {mlm: {probabilty: 0.2}}"))


def test_held_out_data_is_one_pass_in_listed_order_read_as_the_training_s(tmp_path: Path) -> None:
    words = [*DATA, "--data.text", "body", "--data.format", "jsonl", "--data.lanes", "7", "--eval.uri", "held"]
    config = read(*words, "--data.epochs", "3", "--data.storage_options", '{"key": "hush"}')
    stream = config.eval.stream(config.data)
    assert (stream.epochs, stream.shuffle_buffer, stream.lanes) == (1, 0, "auto")
    (source,) = stream.sources
    assert (source.uris, source.text, source.format) == (("held",), "body", "jsonl")
    assert source.storage_options == {"key": "hush"}
    other = read(*words, "--eval.text", "line", "--eval.format", "csv")
    (source,) = other.eval.stream(other.data).sources
    assert (source.text, source.format) == ("line", "csv")
    hub = read(*HUB, "--data.config", "en", "--eval.uri", "hf://datasets/org/name", "--eval.split", "validation")
    (source,) = hub.eval.stream(hub.data).sources
    assert (source.config, source.split) == ("en", "validation")
    signed = read(*DATA, "--eval.uri", "https://host/x.jsonl?sig=hush")
    assert "hush" not in to_yaml(signed) + repr(signed)
    assert read("--config", write(tmp_path, to_yaml(other))).eval == other.eval


def test_no_setting_is_without_a_help_text() -> None:
    bare = [name for name, text, _ in _settings(RunConfig) if not text]
    sections = {name.rpartition(".")[0] for name, *_ in _settings(RunConfig)}
    assert [name for name in bare if name not in sections] == []


def test_a_flag_that_is_on_or_off_may_stand_alone_wherever_it_stands() -> None:
    packed = [*DATA, "--data.packing", "none"]
    for words in (["--profile", *packed], [*packed, "--profile"], [*packed, "--profile", "true"]):
        assert read(*words).profile
    assert not read(*packed, "--profile", "false").profile
    assert not read(*packed, "--profile=false").profile
    assert read("--data.group_by_length", *packed).data.group_by_length
