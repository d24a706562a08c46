"""Small tokenizers for tests: trained here on the standard library's sources, in about a second, without a network."""

from __future__ import annotations

import json
import sysconfig
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

EOS = "<|endoftext|>"
BERT_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


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


@cache
def _word_piece_vocabulary(vocab_size: int) -> dict[str, int]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=BERT_SPECIALS, show_progress=False)
    tokenizer.train_from_iterator(standard_library_texts(), trainer)
    return tokenizer.get_vocab()


def build_bert(folder: Path, vocab_size: int = 1000) -> Path:
    """Save a WordPiece tokenizer as BERT's to ``folder``: [CLS] A [SEP] B [SEP], token types, [MASK]; no EOS."""
    from transformers import BertTokenizer

    BertTokenizer(vocab=dict(_word_piece_vocabulary(vocab_size))).save_pretrained(folder)
    return folder


def build_roberta(folder: Path, vocab_size: int = 1000) -> Path:
    """Save a byte-level BPE as RoBERTa's to ``folder``: <s> A </s></s> B </s>, no token types, <mask>."""
    from transformers import RobertaTokenizer

    model = json.loads(bpe_json(vocab_size))["model"]
    trained = sorted((token for token in model["vocab"] if token != EOS), key=model["vocab"].__getitem__)
    vocabulary = {token: number for number, token in enumerate([*ROBERTA_SPECIALS, *trained])}
    RobertaTokenizer(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]]).save_pretrained(folder)
    return folder
