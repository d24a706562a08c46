"""Tokenizers of every common kind, each small and trained here, as specs."""

# ruff: noqa: RUF001 - a pattern over Japanese

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from streamfeed.encode.tokenizer import TokenizerSpec, load_tokenizer
from tests.tokenizers_for_tests import EOS, bpe_json, standard_library_texts

if TYPE_CHECKING:
    from collections.abc import Callable

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def gpt2_bpe() -> Tokenizer:
    return Tokenizer.from_str(bpe_json())


def llama3_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _train_bpe(tokenizer, sorted(pre_tokenizers.ByteLevel.alphabet()))


def sentencepiece_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _train_bpe(tokenizer, [], ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])


def metaspace_bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    return _train_bpe(tokenizer, [], ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))])


def nfc_bpe() -> Tokenizer:
    tokenizer = Tokenizer.from_str(bpe_json())
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=1000, special_tokens=[EOS, "[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(standard_library_texts(), trainer)
    return tokenizer


def deepseek_bpe() -> Tokenizer:
    """Three splits one after another; fastokens 0.3.5 gives other ids for spaces before a character none matches."""
    tokenizer = llama3_bpe()
    patterns = (
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        (
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
    )
    splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    return tokenizer


def stripping_bpe() -> Tokenizer:
    """An added word that takes the spaces around it; fastokens 0.3.5 gives other ids."""
    tokenizer = llama3_bpe()
    tokenizer.add_tokens([AddedToken("    ", lstrip=True, rstrip=True)])
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=[EOS, "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([text[:4000] for text in standard_library_texts()], trainer)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    kind.__name__: kind
    for kind in (
        gpt2_bpe,
        llama3_bpe,
        nfc_bpe,
        sentencepiece_bpe,
        metaspace_bpe,
        word_piece,
        unigram,
        stripping_bpe,
        deepseek_bpe,
    )
}


@cache
def spec_of(kind: str) -> TokenizerSpec:
    """Return the spec of one of :data:`KINDS`, with two more control strings and one added word that is not special."""
    tokenizer = KINDS[kind]()
    tokenizer.add_special_tokens([AddedToken("<|user|>", special=True), AddedToken("<think>", special=True)])
    tokenizer.add_tokens([AddedToken("zyzzyva", normalized=False)])
    return load_tokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=EOS))


def _train_bpe(tokenizer: Tokenizer, alphabet: list[str], specials: list[str] | None = None) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=1300,
        special_tokens=[EOS, *(specials or [])],
        initial_alphabet=alphabet,
        show_progress=False,
        max_token_length=16,
    )
    tokenizer.train_from_iterator([text[:4000] for text in standard_library_texts()], trainer)
    return tokenizer
