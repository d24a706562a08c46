"""Columns that are asked for, against what the positions say; and the width of batches that are padded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamfeed.errors import ConfigError
from tests.streams import CACHE, InProcessLoader, corpus, stream, take

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from streamfeed import StreamConfig

pytestmark = pytest.mark.usefixtures("one_engine")


@pytest.fixture(params=["concat", "best_fit", "none"])
def config(request: pytest.FixtureRequest, tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> StreamConfig:
    """A finite stream whose last rows are empty or part empty."""
    corpus(tmp_path, "jsonl", (40, 25, 31, 8), words=30)
    return stream(tmp_path, "jsonl", tokenizer, epochs=1, packing=request.param)


def load(config: StreamConfig, **options: Any) -> InProcessLoader:
    return InProcessLoader(config, 3, workers=2, cache_dir=CACHE, **options)


def test_document_ids_number_the_pieces_of_a_row_and_padding_is_of_none(config: StreamConfig) -> None:
    for batch in take(load(config, columns=["document_ids"])):
        for ids, labels, positions, tokens in zip(
            batch["document_ids"], batch["labels"], batch["position_ids"], batch["input_ids"], strict=True
        ):
            assert ids.dtype == np.int32
            number = np.cumsum(positions == 0) - 1
            padding = ids < 0
            assert (ids[~padding] == number[~padding]).all()
            assert (labels[padding] == -100).all()
            assert (tokens[padding] == 0).all()
            assert not padding[: len(ids) - padding.sum()].any()


def test_cu_seqlens_are_the_ends_of_all_pieces_and_max_seqlen_the_longest(config: StreamConfig) -> None:
    for batch in take(load(config, columns=["cu_seqlens"])):
        begins = np.flatnonzero(batch["position_ids"].reshape(-1) == 0)
        assert batch["cu_seqlens"].tolist() == [*begins, batch["position_ids"].size]
        assert batch["cu_seqlens"].dtype == np.int32
        assert int(batch["max_seqlen"]) == np.diff(batch["cu_seqlens"]).max()
        assert int(batch["max_seqlen"]) == batch["position_ids"].max() + 1


def test_asking_for_columns_changes_no_other_column(config: StreamConfig) -> None:
    plain, more = take(load(config)), take(load(config, columns=["cu_seqlens", "document_ids"]))
    for one, other in zip(plain, more, strict=True):
        assert other.keys() - one.keys() == {"cu_seqlens", "max_seqlen", "document_ids"}
        assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("multiple", [None, 1, 8, 16])
def test_unpacked_batches_are_as_wide_as_their_longest_row_rounded_up(
    config: StreamConfig, multiple: int | None
) -> None:
    if config.packing != "none":
        if multiple is not None:
            with pytest.raises(ConfigError, match="every row has seq_len"):
                load(config, pad_to_multiple_of=multiple)
        return
    loader = load(config, pad_to_multiple_of=multiple)
    widths = set()
    for batch in take(loader):
        lengths = batch["attention_mask"].sum(axis=1)
        width = batch["input_ids"].shape[1]
        widths.add(width)
        assert width == -(-max(1, lengths.max()) // (multiple or 1)) * (multiple or 1)
        shown = np.arange(width) < lengths[:, None]
        assert (batch["attention_mask"] == shown).all()
        assert (batch["labels"][~shown] == -100).all()
    assert len(widths) > 1
    report = loader.report()
    assert 0.2 < report.utilisation < 1
    assert report.padding > 0
    assert "samples cut into several rows" in report.remarks()
    assert "cut" not in report.summary()
    assert report.said() == f"not trained on: {report.summary()}; {report.remarks()}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["labels"]}, "columns takes names among document_ids, cu_seqlens, got 'labels'"),
        ({"pad_to_multiple_of": 5}, "must divide seq_len 32, got 5"),
        ({"pad_to_multiple_of": 0}, "must divide seq_len 32, got 0"),
    ],
)
def test_columns_that_there_are_not_and_widths_that_cannot_be_are_refused(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, options: dict[str, Any], message: str
) -> None:
    corpus(tmp_path, "jsonl", (5,))
    with pytest.raises(ConfigError, match=message):
        load(stream(tmp_path, "jsonl", tokenizer, packing="none"), **options)


def test_a_batch_of_a_group_owns_what_was_made_for_it(config: StreamConfig) -> None:
    """Batches assembled at once: columns made for one are not those of another."""
    batches = []
    for batch in load(config, columns=["document_ids"]):
        batches.append({name: tensor.clone() for name, tensor in batch.items()})
        batch["document_ids"].fill_(-7)
        batch["input_ids"].fill_(-7)
    again = list(load(config, columns=["document_ids"]))
    for one, other in zip(batches, again, strict=True):
        assert all((one[name] == other[name]).all() for name in one)
