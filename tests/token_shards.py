"""Shards of tokens of the suite's small tokenizer."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import orjson

from streamfeed.convert.forms import Origin, Shown
from streamfeed.convert.rows import json_rows
from streamfeed.convert.settings import Settings
from streamfeed.convert.tokens import TokenWriter
from streamfeed.encode.proof import Verdict
from streamfeed.encode.tokenizer import TokenizerSpec, load_tokenizer
from tests.tokenizers_for_tests import build_bpe

if TYPE_CHECKING:
    from collections.abc import Sequence


@cache
def spec() -> TokenizerSpec:
    """What the fixture ``tokenizer`` means."""
    with tempfile.TemporaryDirectory() as folder:
        return load_tokenizer(str(build_bpe(Path(folder))))


def write_tokens(path: Path, texts: Sequence[str | None], parts: int) -> None:
    """Write a shard of the texts, in batches of about a part of them."""
    settings = Settings("tokens", tokenizer=spec(), verdict=Verdict("fastokens", "proven in tests of its own"))
    size = max(1, sum(map(len, filter(None, texts))) // parts)
    with patch.multiple("streamfeed.convert.tokens", BATCH_TOKENS=max(1, size // 3), _SLICE=max(1, size // 3)):
        writer = TokenWriter(path, Shown("text"), settings)
        writer.add(json_rows([orjson.dumps({"text": text}) for text in texts]), Origin(str(path), 0, 0))
        writer.close()
