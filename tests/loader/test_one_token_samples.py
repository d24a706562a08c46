"""Samples of one token: no objective but those that end a text by an EOS has more in every sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from streamfeed import Source, StreamConfig
from streamfeed.objectives import Chat, Mlm
from tests.corpora import write_records
from tests.streams import CACHE, InProcessLoader, take
from tests.tokenizers_for_tests import EOS, bpe_json

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.objectives import Objective


@pytest.mark.parametrize("packing", ["concat", "best_fit"])
@pytest.mark.parametrize("objective", [Mlm(), Chat(template="{{ messages[0].content }}", train_on="all")])
def test_a_row_may_be_of_as_many_samples_as_it_has_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: Objective, packing: Any
) -> None:
    monkeypatch.setattr("streamfeed.loader.job.MESSAGE_BYTES", 1)  # else there is room, of rows that are not there
    letters = [chr(ord("a") + i % 26) for i in range(64)]
    records = [{"text": one, "messages": [{"role": "user", "content": one}]} for one in letters]
    write_records("jsonl", tmp_path / "0.jsonl", records)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(bpe_json()), eos_token=EOS, mask_token="<mask>"
    )
    config = StreamConfig(
        [Source(str(tmp_path))], tokenizer, seq_len=16, packing=packing, epochs=1, objective=objective
    )
    (batch,) = take(InProcessLoader(config, 4, columns=["document_ids"], cache_dir=CACHE))
    assert (batch["position_ids"] == 0).all()
    assert (batch["document_ids"] == range(16)).all()
