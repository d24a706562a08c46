"""One run of an engine over the adversarial set, in a process of its own.

Engines read their thread settings once a process, start threads that a fork would lose, and one that is wrong may also
crash: so :mod:`streamfeed.encode.proof` starts this module as a process per setting, and only reads what it wrote.

``fast FOLDER NAME THREADS`` encodes with fastokens (``THREADS`` 0: as it does by itself) and writes the ids to
``FOLDER/NAME.npz``; ``reference FOLDER NAME...`` encodes with Hugging Face and compares. Both write
``FOLDER/ROLE.json``, see :class:`Outcome`, and read the tokenizer from ``FOLDER/tokenizer.json`` and its special tokens
from ``FOLDER/frame.json``.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamfeed.encode.adversarial import documents
from streamfeed.encode.compare import document_ids, first_difference
from streamfeed.encode.frame import Frame
from streamfeed.encode.protocol import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


__all__ = ["Outcome", "compare", "encode_in_batches", "main", "thread_environment"]

_BATCH_CHARS = 1_000_000


@dataclass(frozen=True)
class Outcome:
    """What a run found: ``problem`` is empty where nothing is wrong."""

    problem: str
    documents: int = 0
    tokens: int = 0


def thread_environment(threads: int) -> dict[str, str]:
    """Return the variables that a process sets before it builds its first engine, to encode on ``threads`` threads.

    All settings of fastokens and tokenizers that change how they run are pinned, so that what ran in the proof is what
    runs in a worker; fastokens' caches of whole inputs stay off: they hold text, and documents do not repeat.
    """
    return {
        "FASTOKENS_BPE_THREADS": str(threads),
        "FASTOKENS_INPUT_CACHE": "0",
        "FASTOKENS_SEGMENT_CACHE": "0",
        "RAYON_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }


def main(arguments: Sequence[str]) -> None:
    """Run one role; see the module."""
    role, folder = arguments[0], Path(arguments[1])
    tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
    frame = Frame(**json.loads((folder / "frame.json").read_text(encoding="utf-8")))
    if role == "fast":
        _write(folder / f"{arguments[2]}.json", _fast(tokenizer, frame, folder / arguments[2], int(arguments[3])))
    else:
        _write(folder / "reference.json", _reference(tokenizer, frame, [folder / name for name in arguments[2:]]))


def _fast(spec_json: str, frame: Frame, target: Path, threads: int) -> Outcome:
    _set_threads(threads)
    from streamfeed.encode.fast import FastokensEngine

    try:
        engine = FastokensEngine(spec_json, frame)
        texts = documents(spec_json)
        encoded = encode_in_batches(engine.encode, texts)
        again = encode_in_batches(engine.encode, texts[::-1])  # warm caches, and other neighbours in each call
    except Exception as error:  # noqa: BLE001 - whatever an engine raises disproves it
        return Outcome(f"fastokens cannot run this tokenizer: {type(error).__name__}: {error}")
    for index, text in enumerate(texts):
        first, second = document_ids(encoded, index), document_ids(again, len(texts) - 1 - index)
        if not np.array_equal(first, second):
            return Outcome(f"fastokens gave two results for one text of {len(text)} characters, {text[:60]!r}")
    with target.with_suffix(".npz").open("wb") as file:
        np.savez(file, ids=encoded.ids, offsets=encoded.offsets)
    return Outcome("", len(texts), len(encoded.ids))


def _reference(spec_json: str, frame: Frame, sources: Sequence[Path]) -> Outcome:
    from streamfeed.encode.huggingface import HuggingFaceEngine

    texts = documents(spec_json)
    reference = encode_in_batches(HuggingFaceEngine(spec_json, frame).encode, texts)
    for source in sources:
        with np.load(source.with_suffix(".npz")) as arrays:
            fast = Encoded(arrays["ids"], arrays["offsets"])
        problem = compare(texts, fast, reference)
        if problem:
            return Outcome(f"{problem} (threads: {source.stem})", len(texts), len(reference.ids))
    return Outcome("", len(texts), len(reference.ids))


def compare(texts: Sequence[str], fast: Encoded, reference: Encoded) -> str:
    """Name the first text whose ids differ between two engines; empty where there is none."""
    if not len(fast.offsets) == len(reference.offsets) == len(texts) + 1:
        return f"fastokens gave {len(fast.offsets) - 1} results for {len(texts)} texts"
    for index, text in enumerate(texts):
        difference = first_difference(text, document_ids(fast, index), document_ids(reference, index))
        if difference:
            return f"text {index} of the adversarial set: {difference}"
    return ""


def encode_in_batches(encode: Callable[[list[str]], Encoded], texts: Sequence[str]) -> Encoded:
    """Encode many texts in calls of about the size that lanes make; a longer text is a call of its own."""
    parts = [encode(batch) for batch in _batches(texts)]
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    return Encoded(np.concatenate([part.ids for part in parts]), np.concatenate([[0], np.cumsum(lengths)]))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > _BATCH_CHARS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    yield batch


def _set_threads(threads: int) -> None:
    if threads:
        os.environ.update(thread_environment(threads))
        return
    for name in thread_environment(1):
        os.environ.pop(name, None)


def _write(path: Path, outcome: Outcome) -> None:
    path.write_text(json.dumps(asdict(outcome)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
