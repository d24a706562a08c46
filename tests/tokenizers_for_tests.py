"""Small tokenizers for tests: trained here on the standard library's sources, in about a second, without a network."""

from __future__ import annotations

import sysconfig
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

EOS = "<|endoftext|>"


@cache
def standard_library_texts(limit: int = 60, max_chars: int = 20_000) -> tuple[str, ...]:
    """Return the first ``max_chars`` characters of the first ``limit`` sources of the standard library, by name."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = (path.read_text(encoding="utf-8") for path in sorted(root.glob("*.py"))[:limit])
    return tuple(text[:max_chars] for text in texts if text)


@cache
def bpe_json(vocab_size: int = 1000) -> str:
    """Return the JSON of a byte-level BPE in GPT-2 style with :data:`EOS` as its one special token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(standard_library_texts(), trainer)
    return tokenizer.to_str()


def build_bpe(folder: Path, vocab_size: int = 1000) -> Path:
    """Save the tokenizer of :func:`bpe_json` to ``folder`` so that ``transformers`` loads it; return ``folder``."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(bpe_json(vocab_size)), eos_token=EOS)
    tokenizer.save_pretrained(folder)
    return folder
