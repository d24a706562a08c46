"""The embedded default: train on the sources of Python's standard library, with no network and no arguments."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfeed.train.atomic import write_file
from streamfeed.train.demo_corpus import find_documents, write_shards

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DEFAULTS", "FOLDER", "prepare", "train_tokenizer"]

FOLDER = Path("shards/demo")
_VOCABULARY = 4096
_EOS = "<|endoftext|>"
_MARKER = "_SUCCESS"

DEFAULTS: dict[str, Any] = {
    "data.uri": [f"{FOLDER}/*.tar", f"{FOLDER}/*.parquet", f"{FOLDER}/*.jsonl.zst"],
    "data.tokenizer": f"{FOLDER}/tokenizer",
    "data.seq_len": 128,
    "data.shuffle_buffer": 1024,
    "loader.batch_size": 8,
    "loader.num_workers": 1,
    "model.hidden_size": 128,
    "model.num_layers": 3,
    "model.num_heads": 4,
    "train.global_batch_size": 8,
    "train.max_steps": 250,
    "train.lr": 3e-3,
    "train.warmup_steps": 20,
    "train.checkpoint_every": 100,
    "train.log_every": 10,
}
"""What the demo sets in place of the usual defaults: sizes for two cores and three minutes."""


def prepare(say: Callable[[str], None], folder: Path = FOLDER, stdlib: Path | None = None) -> None:
    """Write the shards and the tokenizer under ``folder``, unless an earlier run has finished doing so.

    ``say`` is told in words what happens. Every file appears by rename and the marker comes last, so that an
    interrupted first run is done again.
    """
    marker = folder / _MARKER
    if marker.exists():
        say(f"Demo: using the shards and the tokenizer that an earlier run made under {folder}/.")
        return
    source = stdlib if stdlib is not None else Path(sysconfig.get_path("stdlib"))
    say("Demo: no data was named, so this trains a small model on the sources of Python's standard library.")
    documents, passed_over = find_documents(source)
    size = sum(len(document.text) for document in documents)
    say(f"Found {len(documents):,} files, {size / 1e6:.1f} M characters under {source} ({passed_over} passed over).")
    folder.mkdir(parents=True, exist_ok=True)
    names = write_shards(documents, folder)
    say(f"Wrote them as {len(names)} shards under {folder}/: 3 tar, 3 Parquet, 3 .jsonl.zst.")
    tokens = train_tokenizer([document.text for document in documents], folder / "tokenizer")
    say(f"Trained a byte-level BPE of {tokens:,} tokens on them: {folder / 'tokenizer'}/.")
    write_file(marker, json.dumps({"documents": len(documents), "characters": size, "shards": names}, indent=1) + "\n")


def train_tokenizer(texts: Sequence[str], folder: Path, vocabulary: int = _VOCABULARY) -> int:
    """Train a byte-level BPE and save it for ``transformers``; return the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[_EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer, length=len(texts))
    folder.mkdir(parents=True, exist_ok=True)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": _EOS, "clean_up_tokenization_spaces": False}
    write_file(folder / "tokenizer.json", tokenizer.to_str())
    write_file(folder / "tokenizer_config.json", json.dumps(config, indent=1) + "\n")
    return int(tokenizer.get_vocab_size())
