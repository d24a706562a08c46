"""A shard of tokens: texts encoded once, framed as a lane would frame them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pyarrow as pa

from streamfeed.convert.counts import count
from streamfeed.convert.writers import Written
from streamfeed.encode.objectives.build import build_objective
from streamfeed.encode.objectives.protocol import TextObjective
from streamfeed.errors import ConfigError
from streamfeed.formats.code_points import MOST_IDS
from streamfeed.formats.fields import text_of
from streamfeed.formats.protocol import Bad
from streamfeed.formats.tokens import HASH, META, batch_hash
from streamfeed.objectives import Lm
from streamfeed.storage.files import ShardFile

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.convert.forms import Origin, Shown
    from streamfeed.convert.rows import Rows
    from streamfeed.convert.settings import Settings
    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["TokenWriter", "check_vocabulary"]

BATCH_TOKENS = 1 << 18
_SLICE = 512 << 10  # characters that are encoded at a time


def check_vocabulary(spec: TokenizerSpec) -> None:
    """Raise :class:`ConfigError` for a tokenizer whose ids no shard of tokens can hold, or that has no EOS."""
    _ = spec.frame
    if spec.vocab_size > MOST_IDS:
        raise ConfigError(f"tokenizer {spec.name} has {spec.vocab_size:,} ids, and tokens are kept for {MOST_IDS:,}")


class TokenWriter:
    """Encodes the text of records; a null one is a null document, one without tokens an empty one."""

    def __init__(self, path: Path, shown: Shown, settings: Settings) -> None:
        assert settings.tokenizer is not None
        assert settings.verdict is not None
        spec = settings.tokenizer
        self._samples = _encoder(spec, settings.verdict)
        self._shown = shown
        self._text = settings.text
        self._path = path
        self._dtype = np.min_scalar_type(max(0, spec.vocab_size - 1))
        said = {"tokenizer": spec.fingerprint, "vocabulary": spec.vocab_size, "name": spec.name}
        kind = pa.large_list(pa.from_numpy_dtype(self._dtype))
        self._schema = pa.schema([("ids", kind)], metadata={META: orjson.dumps(said)})
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, self._schema)
        self._texts: list[str | None] = []
        self._waiting = 0
        self._documents: list[Any] = []  # ids of a document, None where it is null
        self._held = self._tokens = 0

    def add(self, rows: Rows, origin: Origin) -> None:
        """Encode the next rows."""
        for index, record in enumerate(self._shown.dicts(rows, origin)):
            text = text_of(record, self._text)
            if isinstance(text, Bad):
                origin.fail(index, text.cause, "name the text's field with --text")
            if text is not None and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    origin.fail(index, f"the text is not Unicode: {error.reason} at {error.start}")
            self._texts.append(text)
            self._waiting += 0 if text is None else len(text)
            if self._waiting >= _SLICE:
                self._encode()

    def _encode(self) -> None:
        texts, self._texts, self._waiting = self._texts, [], 0
        samples = self._samples.encode_texts([text or "" for text in texts])
        bounds = samples.offsets.tolist()
        ids = samples.ids.astype(self._dtype)
        for index, text in enumerate(texts):
            self._documents.append(None if text is None else ids[bounds[index] : bounds[index + 1]])
            self._held += bounds[index + 1] - bounds[index]
            if self._held >= BATCH_TOKENS:
                self._batch()

    def _batch(self) -> None:
        documents, self._documents = self._documents, []
        lengths = [0 if one is None else len(one) for one in documents]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        flat = np.concatenate([np.empty(0, self._dtype), *(one for one in documents if one is not None)])
        null = np.asarray([one is None for one in documents], dtype=np.bool_)
        mask = pa.array(null) if null.any() else None
        ids = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat), mask=mask)
        batch = pa.record_batch([ids], schema=self._schema)
        self._writer.write_batch(batch, custom_metadata={HASH: batch_hash(ids)})
        self._tokens += self._held
        self._held = 0

    def close(self) -> Written:
        """Finish the file."""
        if self._texts:
            self._encode()
        if self._documents:
            self._batch()
        self._writer.close()
        self._file.close()
        return Written(count(ShardFile(str(self._path), self._path.stat().st_size), "tokens"), self._tokens)

    def abandon(self) -> None:
        """Close the file."""
        self._file.close()


@cache
def _encoder(spec: TokenizerSpec, verdict: Verdict) -> TextObjective:
    """Return what encodes texts, built once a process: it takes a second, and a process writes many shards."""
    objective = build_objective(Lm(), spec, verdict, seq_len=2)
    assert isinstance(objective, TextObjective)
    return objective
