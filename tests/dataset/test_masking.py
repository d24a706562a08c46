"""Masks of masked language modelling: what is drawn, from what alone, and how much of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.dataset.batch import IGNORED
from streamfeed.dataset.masking import LONGEST_WORD, Masker, split_mix
from streamfeed.encode.tokenizer import TokenizerSpec
from streamfeed.errors import ConfigError
from streamfeed.objectives import Mlm

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAD, CLS, SEP, MASK = 0, 2, 3, 4
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZE = 200


def spec_with(vocabulary: dict[str, int], model: dict[str, Any] | None = None) -> TokenizerSpec:
    """Return the spec of a tokenizer with the five special tokens of BERT and then these."""
    vocabulary = {token: number for number, token in enumerate(SPECIALS)} | vocabulary
    parsed = {
        "added_tokens": [{"id": number, "content": token, "special": True} for number, token in enumerate(SPECIALS)],
        "model": {"vocab": vocabulary, **(model or {"type": "WordPiece", "continuing_subword_prefix": "##"})},
    }
    return TokenizerSpec(json.dumps(parsed), "", None, None, PAD, len(vocabulary), "tiny", mask_id=MASK)


def word_piece() -> TokenizerSpec:
    """Return a spec whose ids from 5 on are words where even, continuations where odd."""
    return spec_with({("##" if number % 2 else "") + f"t{number}": number for number in range(5, SIZE)})


def masked(
    masker: Masker, ids: NDArray[np.int64], rows: NDArray[np.int64], pass_number: int = 0, short: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the masked ids and the labels; every row is ``short`` tokens shorter than ``seq_len``."""
    shown, labels = ids.copy(), np.full_like(ids, 12345)
    lengths = np.full(len(ids), ids.shape[1] - short, dtype=np.int32)
    masker.apply(shown, labels, lengths, rows, pass_number)
    return shown, labels


def framed(count: int, seq_len: int) -> NDArray[np.int64]:
    """Return rows of any ids, special ones among them; every other row may begin inside a word."""
    ids = np.random.default_rng(1).integers(5, SIZE, size=(count, seq_len), dtype=np.int64)
    ids[::2, 0] = CLS
    ids[:, 7::20] = SEP
    return ids


@pytest.mark.parametrize(("whole_word", "probability"), [(False, 0.15), (True, 0.15), (False, 0.4)])
def test_15_percent_are_chosen_and_of_these_80_are_masked_10_random_10_unchanged(
    whole_word: bool, probability: float
) -> None:
    ids = framed(400, 256)
    shown, labels = masked(Masker(Mlm(probability, whole_word), word_piece(), 0), ids, np.arange(400))
    ordinary = ids >= len(SPECIALS)
    chosen = labels != IGNORED
    assert chosen.sum() / ordinary.sum() == pytest.approx(probability, abs=0.01)
    kinds = shown[chosen]
    assert np.mean(kinds == MASK) == pytest.approx(0.8, abs=0.015)
    assert np.mean(kinds == ids[chosen]) == pytest.approx(0.1 + 0.1 / (SIZE - 5), abs=0.015)
    random = kinds[(kinds != MASK) & (kinds != ids[chosen])]
    assert random.min() >= len(SPECIALS)  # a random token is never special
    assert len(np.unique(random)) == SIZE - len(SPECIALS)  # and may be any other


def test_labels_are_the_original_ids_of_what_was_chosen_and_nothing_else_changes() -> None:
    ids = framed(50, 100)
    shown, labels = masked(Masker(Mlm(), word_piece(), 0), ids, np.arange(50))
    chosen = labels != IGNORED
    assert chosen.any()
    assert (labels[chosen] == ids[chosen]).all()
    assert (shown[~chosen] == ids[~chosen]).all()


@pytest.mark.parametrize("whole_word", [False, True])
def test_special_tokens_and_padding_are_never_chosen(whole_word: bool) -> None:
    ids = framed(50, 100)
    shown, labels = masked(Masker(Mlm(0.99, whole_word), word_piece(), 0), ids, np.arange(50), short=30)
    special = ids < len(SPECIALS)
    assert (labels[special] == IGNORED).all()
    assert (shown[special] == ids[special]).all()
    assert (labels[:, 70:] == IGNORED).all()  # padding is known by length: these ids are not special
    assert (shown[:, 70:] == ids[:, 70:]).all()
    assert np.mean(labels[:, :70][~special[:, :70]] != IGNORED) > 0.95


@pytest.mark.parametrize("whole_word", [False, True])
@given(rows=st.lists(st.integers(0, 299), min_size=1, max_size=40), start=st.integers(0, 2**40))
def test_a_row_has_the_same_mask_in_any_batch_and_at_any_place(whole_word: bool, rows: list[int], start: int) -> None:
    masker = Masker(Mlm(whole_word=whole_word), word_piece(), 5)
    ids = framed(300, 256)
    numbers = np.arange(300, dtype=np.int64) + start
    whole = masked(masker, ids, numbers)  # more than one block
    part = masked(masker, ids[rows], numbers[rows])
    assert (part[0] == whole[0][rows]).all()
    assert (part[1] == whole[1][rows]).all()


def test_the_width_of_the_batch_does_not_matter() -> None:
    masker = Masker(Mlm(), word_piece(), 5)
    ids = framed(20, 100)
    wide = masked(masker, ids, np.arange(20), short=40)
    narrow = masked(masker, np.ascontiguousarray(ids[:, :60]), np.arange(20))
    assert (wide[0][:, :60] == narrow[0]).all()
    assert (wide[1][:, :60] == narrow[1]).all()


def test_another_row_number_pass_or_seed_gives_another_mask() -> None:
    ids = np.full((4, 512), 10, dtype=np.int64)
    spec = word_piece()
    base = masked(Masker(Mlm(), spec, 0), ids, np.arange(4))[1] != IGNORED
    others = [
        masked(Masker(Mlm(), spec, 0), ids, np.arange(1, 5))[1] != IGNORED,
        masked(Masker(Mlm(), spec, 0), ids, np.arange(4), pass_number=1)[1] != IGNORED,
        masked(Masker(Mlm(), spec, 1), ids, np.arange(4))[1] != IGNORED,
    ]
    for other in others:
        assert np.mean(base & other) == pytest.approx(0.15**2, abs=0.01)  # as unrelated masks would have
    assert (base[1:] == others[0][:-1]).all()  # row 1 is row 1
    assert len({row.tobytes() for row in base}) == 4


def test_columns_and_neighbouring_rows_are_unrelated() -> None:
    ids = np.full((2000, 64), 10, dtype=np.int64)
    chosen = masked(Masker(Mlm(0.5), word_piece(), 0), ids, np.arange(2000))[1] != IGNORED
    assert np.abs(chosen.mean(axis=0) - 0.5).max() < 0.06
    assert np.mean(chosen[1:] == chosen[:-1]) == pytest.approx(0.5, abs=0.01)
    for gap in (1, 2, 16):
        assert np.mean(chosen[:, gap:] == chosen[:, :-gap]) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("whole_word", "columns", "shown"),
    [
        (
            False,
            [6, 7, 13, 16, 17, 19, 20, 21, 25, 30, 33, 35, 36, 39],
            [4, 4, 4, 76, 22, 183, 4, 4, 4, 4, 4, 99, 4, 4],
        ),
        (
            True,
            [7, 8, 13, 14, 17, 18, 19, 20, 21, 22, 25, 26, 33, 34, 35, 36, 39],
            [4, 4, 4, 4, 22, 4, 183, 4, 4, 4, 4, 4, 4, 4, 99, 4, 4],
        ),
    ],
)
def test_masks_are_the_same_after_every_upgrade(whole_word: bool, columns: list[int], shown: list[int]) -> None:
    ids = np.arange(5, 45, dtype=np.int64)[None]
    found = masked(Masker(Mlm(0.3, whole_word), word_piece(), 7), ids, np.asarray([1_000_003]), pass_number=2)
    chosen = np.flatnonzero(found[1][0] != IGNORED)
    assert chosen.tolist() == columns
    assert found[0][0, chosen].tolist() == shown


def test_the_hash_is_split_mix_64() -> None:
    state = np.asarray([0x9E3779B97F4A7C15 * step % 2**64 for step in (1, 2, 3)], dtype=np.uint64)
    assert split_mix(state).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # of seed 0


def words_of(spec: TokenizerSpec, tokens: list[str]) -> list[list[str]]:
    """Return the tokens in the groups that are always chosen together, over many rows."""
    vocabulary = json.loads(spec.json)["model"]["vocab"]
    ids = np.tile(np.asarray([vocabulary[token] for token in tokens], dtype=np.int64), (300, 1))
    chosen = masked(Masker(Mlm(0.5, whole_word=True), spec, 0), ids, np.arange(300))[1] != IGNORED
    words = [[tokens[0]]]
    for column in range(1, len(tokens)):
        if (chosen[:, column] == chosen[:, column - 1]).all():
            words[-1].append(tokens[column])
        else:
            words.append([tokens[column]])
    return words


def test_word_pieces_of_a_word_are_chosen_together() -> None:
    spec = spec_with({"em": 5, "##bed": 6, "##ding": 7, "the": 8})
    assert words_of(spec, ["##ding", "the", "em", "##bed", "##ding", "the"]) == [
        ["##ding"],
        ["the"],
        ["em", "##bed", "##ding"],
        ["the"],
    ]


def test_a_continuation_behind_a_special_token_begins_a_word() -> None:
    spec = spec_with({"em": 5, "##bed": 6})
    ids = np.tile(np.asarray([5, SEP, 6], dtype=np.int64), (300, 1))
    chosen = masked(Masker(Mlm(0.5, whole_word=True), spec, 0), ids, np.arange(300))[1] != IGNORED
    assert np.mean(chosen[:, 0] == chosen[:, 2]) < 0.7
    assert chosen[:, 2].any()


def test_byte_level_words_begin_at_white_space_and_behind_it() -> None:
    spec = spec_with({"Ġem": 5, "bed": 6, "Ċ": 7, "def": 8, "Ġ": 9, ":": 10}, {"type": "BPE"})
    tokens = ["bed", "Ġem", "bed", ":", "Ċ", "def", "bed", "Ġ", "def"]
    assert words_of(spec, tokens) == [["bed"], ["Ġem", "bed", ":"], ["Ċ"], ["def", "bed"], ["Ġ"], ["def"]]


def test_metaspace_words_begin_at_the_mark() -> None:
    spec = spec_with({"▁em": 5, "bed": 6, "▁the": 7}, {"type": "BPE"})
    assert words_of(spec, ["▁em", "bed", "bed", "▁the", "▁em"]) == [["▁em", "bed", "bed"], ["▁the"], ["▁em"]]


def test_words_that_are_marked_at_their_end_end_there() -> None:
    spec = spec_with({"em": 5, "bed</w>": 6}, {"type": "BPE", "end_of_word_suffix": "</w>"})
    assert words_of(spec, ["em", "bed</w>", "em", "em", "bed</w>"]) == [["em", "bed</w>"], ["em", "em", "bed</w>"]]


def test_a_run_without_marks_is_cut_into_words() -> None:
    spec = spec_with({"a": 5, "##a": 6})
    tokens = ["a", "a"] + ["##a"] * (2 * LONGEST_WORD) + ["a"]
    assert [len(word) for word in words_of(spec, tokens)] == [1, LONGEST_WORD, LONGEST_WORD, 1, 1]


def test_tokenizers_that_cannot_be_masked_are_refused() -> None:
    spec = word_piece()
    with pytest.raises(ConfigError, match="needs a mask token"):
        Masker(Mlm(), replace(spec, mask_id=None), 0)
    with pytest.raises(ConfigError, match="marks none: set whole_word=False"):
        Masker(Mlm(whole_word=True), spec_with({"a": 5, "b": 6}, {"type": "WordLevel"}), 0)
    with pytest.raises(ConfigError, match="nothing can be masked"):
        Masker(Mlm(), spec_with({}), 0)


def test_a_vocabulary_in_a_list_of_scores_is_read_by_its_places() -> None:
    vocabulary = [[token, 0.0] for token in [*SPECIALS, "▁em", "bed"]]
    spec = spec_with({"▁em": 5, "bed": 6})
    parsed = json.loads(spec.json)
    parsed["model"] = {"type": "Unigram", "vocab": vocabulary}
    ids = np.tile(np.asarray([5, 6], dtype=np.int64), (200, 1))
    masker = Masker(Mlm(0.5, whole_word=True), replace(spec, json=json.dumps(parsed)), 0)
    shown, labels = masked(masker, ids, np.arange(200))
    assert ((labels[:, 0] == IGNORED) == (labels[:, 1] == IGNORED)).all()
    assert set(np.unique(shown)) == {MASK, 5, 6}


def test_arrays_that_cannot_be_written_in_place_are_refused() -> None:
    ids = framed(4, 20)
    with pytest.raises(ValueError, match="C-contiguous"):
        Masker(Mlm(), word_piece(), 0).apply(
            ids[:, ::2], np.empty_like(ids[:, ::2]), np.full(4, 10, np.int32), np.arange(4), 0
        )
