"""Every setting of the main job: flags, YAML keys and defaults are read off these classes.

The help text of a flag is the ``help`` in its field's metadata, so that a setting has one place.
"""

# ruff: noqa: RUF009 - _setting() is dataclasses.field() with a help text
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamfeed.config import OnError, Packing, RetryPolicy, Source, StreamConfig
from streamfeed.errors import ConfigError
from streamfeed.objectives import Chat, Mlm, PromptCompletion
from streamfeed.train.eval_config import EvalConfig
from streamfeed.train.objective_config import ClassificationConfig, ObjectiveName, objective_of
from streamfeed.train.setting import setting as _setting

__all__ = [
    "Attention",
    "DataConfig",
    "EvalConfig",
    "LoaderConfig",
    "ModelConfig",
    "Parallel",
    "Precision",
    "RunConfig",
    "Schedule",
    "SourceConfig",
    "TrainConfig",
]

Precision = Literal["auto", "fp32", "bf16", "fp16"]
Attention = Literal["auto", "eager", "sdpa", "flex_attention"]
Parallel = Literal["ddp", "fsdp"]
Schedule = Literal["cosine", "constant"]


@dataclass(frozen=True)
class SourceConfig:
    """One entry of ``data.sources``: a dataset of a mixture."""

    uri: str | list[str] = field(repr=False)  # it may be signed
    text: str | None = None
    format: str | None = None
    weight: float = 1.0
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    config: str | None = None
    split: str | None = None


@dataclass(frozen=True)
class DataConfig:
    """What is streamed: the settings of :class:`~streamfeed.config.StreamConfig`."""

    uri: str | list[str] | None = _setting(
        None, "path, folder, glob, brace pattern or URL of the shards, or a list", shown=False
    )
    text: str | None = _setting(None, "field that holds the text; left out: 'text', and in a tar the .txt member")
    format: str | None = _setting(
        None,
        "jsonl, parquet, arrow, tar, text (a document a file), lines, csv, tsv; left out: from suffix and magic bytes",
    )
    sources: list[SourceConfig] | None = _setting(
        None, "a mixture, instead of uri: a list of {uri, text, format, weight}"
    )
    storage_options: dict[str, Any] | None = _setting(
        None,
        "fsspec options of the store of data.uri (keys, end point), as JSON; never saved: give it again",
        shown=False,
    )
    config: str | None = _setting(None, "of hf://datasets/org/name: its config; left out: the default one")
    split: str | None = _setting(None, "of hf://datasets/org/name: its split; left out: train")
    retry: RetryPolicy = field(default_factory=RetryPolicy)  # of all sources
    tokenizer: str | None = _setting(None, "name or folder of a Hugging Face tokenizer")
    seq_len: int = _setting(1024, "tokens in a row")
    objective: ObjectiveName = _setting(
        "lm",
        "what a record becomes: lm (the text), chat, prompt_completion, classification or mlm; each with settings of "
        "its name",
    )
    chat: Chat = field(default_factory=Chat)
    prompt_completion: PromptCompletion = field(default_factory=PromptCompletion)
    classification: ClassificationConfig = field(default_factory=ClassificationConfig)
    mlm: Mlm = field(default_factory=Mlm)
    packing: Packing = _setting(
        "concat",
        "how samples become rows: concat (end to end), best_fit (whole ones together, padded), none (one a row, padded "
        "to the longest of the batch; classification needs it)",
    )
    group_by_length: bool = _setting(False, "with packing none: samples of about one length in rows near each other")
    shuffle_buffer: int = _setting(16384, "documents that the whole run holds to shuffle; 0: listed order")
    window_bytes: int = _setting(64 << 20, "bytes of text that a lane's window may hold")
    seed: int = _setting(0, "seed of the order of the data")
    lanes: int | Literal["auto"] = _setting("auto", "independent sequences of rows; auto: from the corpus")
    epochs: int | None = _setting(None, "passes over the data; left out: repeat for ever")
    on_error: OnError = _setting("raise", "what to do with bad records: raise, or skip (counted, bounded)")
    skip_budget: int = _setting(1000, "bad records that on_error=skip may pass over")

    @property
    def named(self) -> bool:
        """Whether data is named at all; if not, the embedded demo runs."""
        return self.uri is not None or bool(self.sources)

    def stream(self) -> StreamConfig:
        """Build the stream's config. Raises :class:`ConfigError` where settings contradict each other."""
        if self.uri is not None and self.sources:
            raise ConfigError("data.uri and data.sources are both given; name the data in one of them")
        if self.sources and (self.text or self.format or self.storage_options or self.config or self.split):
            raise ConfigError(
                "data.text, data.format, data.storage_options, data.config and data.split belong to data.uri; "
                "in data.sources each entry has its own"
            )
        if any("***" in uri for source in self._sources() for uri in source.uris):
            raise ConfigError("a saved config holds nothing that signs URLs; give data.uri (or data.sources) again")
        if self.tokenizer is None:
            raise ConfigError("data.tokenizer is missing: the name or the folder of a Hugging Face tokenizer")
        return StreamConfig(
            sources=self._sources(),
            tokenizer=self.tokenizer,
            seq_len=self.seq_len,
            packing=self.packing,
            shuffle_buffer=self.shuffle_buffer,
            window_bytes=self.window_bytes,
            seed=self.seed,
            lanes=self.lanes,
            epochs=self.epochs,
            on_error=self.on_error,
            skip_budget=self.skip_budget,
            objective=objective_of(self),
            group_by_length=self.group_by_length,
        )

    def _sources(self) -> list[Source]:
        if self.sources:
            return [
                Source(s.uri, s.text, s.format, s.weight, s.storage_options, s.config, s.split, self.retry)
                for s in self.sources
            ]
        if self.uri is None:
            raise ConfigError("no data is named: give data.uri, or a list in data.sources")
        options = self.storage_options
        return [Source(self.uri, self.text, self.format, 1.0, options, self.config, self.split, self.retry)]


@dataclass(frozen=True)
class LoaderConfig:
    """How the stream is run; free to change on resume."""

    batch_size: int = _setting(8, "rows in a micro-batch of one rank")
    num_workers: int = _setting(1, "processes that read and tokenize; 0: in the training process")
    pad_to_multiple_of: int | None = _setting(
        None, "with packing none: pad rows to a multiple of this, which divides data.seq_len"
    )


@dataclass(frozen=True)
class ModelConfig:
    """A model by name, or the sizes of a small one that starts from random weights.

    It is a Llama, or a BERT where the objective is classification or mlm.
    """

    name_or_path: str | None = _setting(None, "model of the Hugging Face Hub or folder, instead of the sizes below")
    hidden_size: int = _setting(512, "width")
    intermediate_size: int | None = _setting(
        None, "width of the MLP; left out: 8/3 of hidden_size, a multiple of 64, and in a BERT 4 of it"
    )
    num_layers: int = _setting(8, "layers")
    num_heads: int = _setting(8, "attention heads")
    num_kv_heads: int | None = _setting(None, "key and value heads of a Llama; left out: num_heads")
    dropout: float = _setting(0.0, "dropout of the attention weights, and in a BERT of its layers")
    attention: Attention = _setting(
        "auto",
        "eager, sdpa or flex_attention (not on a CPU, no dropout); auto: transformers' choice; documents of a row are "
        "kept apart in all",
    )
    rope_theta: float = _setting(10000.0, "base of the rotary embedding of a Llama")
    tie_embeddings: bool = _setting(True, "share the input and the output embedding")


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained."""

    output_dir: str | None = _setting(None, "run folder; left out: a fresh numbered one under runs/")
    global_batch_size: int | None = _setting(None, "rows of an optimizer step; left out: one micro-batch of every rank")
    max_steps: int | None = _setting(
        None,
        "optimizer steps; left out: 1000, unless train.max_tokens or data.epochs bounds the run; the first one ends it",
    )
    max_tokens: int | None = _setting(
        None, "labels trained on, over all ranks, padding not counted: the first step that reaches it is the last"
    )
    lr: float = _setting(3e-4, "peak learning rate")
    lr_schedule: Schedule = _setting(
        "cosine",
        "behind the warm-up: cosine, down to min_lr at the end of the run (data.epochs alone are counted for it), "
        "or constant",
    )
    min_lr: float = _setting(0.1, "learning rate at the end of a cosine, as a share of the peak")
    warmup_steps: int = _setting(100, "steps of linear warm-up")
    weight_decay: float = _setting(0.1, "AdamW's decay of matrices")
    beta1: float = _setting(0.9, "AdamW's decay of the mean of gradients")
    beta2: float = _setting(0.95, "AdamW's decay of the mean of squared gradients")
    clip: float = _setting(1.0, "largest norm of the gradient; 0: no clipping")
    checkpoint_every: int = _setting(500, "steps between checkpoints; 0: only at the end")
    keep_checkpoints: int = _setting(0, "how many checkpoints are kept, the newest; 0: all")
    parallel: Parallel = _setting(
        "ddp",
        "several ranks hold a copy of the model each (ddp), or a part (fsdp, FSDP2), on GPUs and CPUs; free to "
        "change on resume",
    )
    log_every: int = _setting(10, "steps between lines of metrics.jsonl")
    trackers: str | list[str] = _setting(
        "auto",
        "what else gets the lines of metrics.jsonl: names that Accelerate knows (tensorboard, wandb, mlflow, ...), "
        "a list or with commas; none; auto: tensorboard where it is installed",
    )
    seed: int = _setting(0, "seed of weights and dropout")
    skip_rows: int = _setting(
        0,
        "rows of the stream to step over at (re)start, as a total of the run: what a checkpoint has skipped counts",
    )
    precision: Precision = _setting("auto", "auto: bf16 on CUDA, else fp32")


@dataclass(frozen=True)
class RunConfig:
    """The main job."""

    data: DataConfig = field(default_factory=DataConfig)
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    resume: str | None = _setting(None, "'latest', a run folder, or one of its checkpoints")
    profile: bool = _setting(False, "write what the data pipeline does when to profile.json, for ui.perfetto.dev")

    def stream(self) -> StreamConfig:
        """Build the config of what is trained on, which is the data without what eval holds out.

        Raises :class:`ConfigError` where settings contradict each other.
        """
        return replace(self.data.stream(), hold_out=self.eval.held)

    def eval_stream(self) -> StreamConfig:
        """Build the config of one pass over the held-out data. Raises :class:`ConfigError`."""
        return self.eval.stream(self.data)

    def check(self) -> None:
        """Raise :class:`ConfigError` for values that cannot work, before anything heavy is imported."""
        self.stream()
        self.eval.check()
        if self.eval.given:
            self.eval_stream()
        for name, least in _LEAST.items():
            section, key = name.split(".")
            value = getattr(getattr(self, section), key)
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if not self.train.lr > 0:
            raise ConfigError(f"train.lr must be positive, got {self.train.lr}")
        if not 0 <= self.model.dropout < 1:
            raise ConfigError(f"model.dropout must be at least 0 and below 1, got {self.model.dropout}")
        if self.model.dropout and self.model.attention == "flex_attention":
            raise ConfigError("model.dropout does not work with model.attention flex_attention; set one of the two")
        if self.model.hidden_size % self.model.num_heads:
            raise ConfigError(
                f"model.hidden_size {self.model.hidden_size} does not divide by model.num_heads {self.model.num_heads}"
            )


_LEAST: dict[str, float] = {
    "loader.batch_size": 1,
    "loader.num_workers": 0,
    "loader.pad_to_multiple_of": 1,
    "eval.every": 0,
    "model.hidden_size": 1,
    "model.intermediate_size": 1,
    "model.num_layers": 1,
    "model.num_heads": 1,
    "model.num_kv_heads": 1,
    "train.global_batch_size": 1,
    "train.max_steps": 1,
    "train.max_tokens": 1,
    "train.keep_checkpoints": 0,
    "train.min_lr": 0,
    "train.warmup_steps": 0,
    "train.weight_decay": 0,
    "train.clip": 0,
    "train.checkpoint_every": 0,
    "train.log_every": 1,
    "train.seed": 0,
    "train.skip_rows": 0,
}
