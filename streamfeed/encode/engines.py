"""The engine that a verdict asks for, and the check that goes on while it runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from streamfeed.encode.compare import document_ids, first_difference
from streamfeed.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.protocol import Encoded, Engine
    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["CHECK_EVERY", "CheckedEngine", "build_engine", "engine_threads"]

_LOG = logging.getLogger("streamfeed.encode")

# Hugging Face is about 90 to 180 times slower: one document in 16384 costs about 1 % of the encoding time.
CHECK_EVERY = 16384
_MAX_CHECKED_CHARS = 65_536  # a longer document would stall its lane for up to seconds; the next one is checked instead


def build_engine(
    spec: TokenizerSpec,
    verdict: Verdict,
    check_every: int | None = CHECK_EVERY,
    on_mismatch: Callable[[str], None] | None = None,
) -> Engine:
    """Build the engine of a verdict; the fast one is wrapped in a :class:`CheckedEngine`, or not where that is None.

    Set :func:`~streamfeed.encode.proof.thread_environment` first. ``on_mismatch`` gets the reason before the error is
    raised: pass :func:`~streamfeed.encode.proof.disprove`, so that the next start uses Hugging Face.
    """
    from streamfeed.encode.huggingface import HuggingFaceEngine  # tokenizers is not needed where nothing is encoded

    _LOG.debug("building %s for tokenizer %s: %s", verdict.engine, spec.name, verdict.reason)
    if verdict.engine == "huggingface":
        return HuggingFaceEngine(spec.json, spec.frame)
    from streamfeed.encode.fast import FastokensEngine

    fast = FastokensEngine(spec.json, spec.frame)
    if check_every is None:
        return fast
    return CheckedEngine(
        fast,
        lambda: HuggingFaceEngine(spec.json, spec.frame),
        check_every,
        on_mismatch or (lambda _: None),
    )


def engine_threads(verdict: Verdict, workers: int, cores: int) -> int:
    """Return how many threads each of ``workers`` processes on ``cores`` cores encodes with; logs which and why.

    Call it once a run, and pass the number to :func:`~streamfeed.encode.proof.thread_environment` in each worker before
    it builds its engine. No ids depend on it. fastokens gets one: a worker is a thread of encoding, and more workers
    read, shuffle and pack more too. Hugging Face is what such a run waits for, so its workers share all cores.
    """
    if verdict.engine == "fastokens":
        _LOG.info("encoding with fastokens, 1 thread a worker: more workers, not threads, use more cores")
        return 1
    threads = max(1, cores // max(1, workers))
    _LOG.info(
        "encoding with Hugging Face tokenizers (%s), %d thread(s) a worker: %d cores for %d worker(s)",
        verdict.reason,
        threads,
        cores,
        workers,
    )
    return threads


class CheckedEngine:
    """An engine of which one document in ``check_every`` is encoded again with the reference.

    Which one is decided by count, so a run repeats its checks. The reference is built at the first check: a short run
    never pays for it. Documents over 65,536 characters pass the check on to the next one.
    """

    def __init__(
        self,
        engine: Engine,
        build_reference: Callable[[], Engine],
        check_every: int,
        on_mismatch: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._build_reference = build_reference
        self._reference: Engine | None = None
        self._check_every = check_every
        self._until_check = check_every
        self._on_mismatch = on_mismatch

    @property
    def name(self) -> str:
        """The name of the engine that is checked."""
        return self._engine.name

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts in order. Raises :class:`~streamfeed.errors.EngineError` where the checked one differs."""
        encoded = self._engine.encode(texts)
        self._until_check -= len(texts)
        if self._until_check <= 0:
            self._check(texts, encoded)
        return encoded

    def _check(self, texts: Sequence[str], encoded: Encoded) -> None:
        due = max(0, len(texts) - 1 + self._until_check)
        index = next((i for i in range(due, len(texts)) if 0 < len(texts[i]) <= _MAX_CHECKED_CHARS), None)
        if index is None:
            self._until_check = 0  # the next call has a document to check, or the one after
            return
        self._until_check = max(1, self._check_every - (len(texts) - 1 - index))  # at most one a call
        if self._reference is None:
            self._reference = self._build_reference()
        reference = self._reference.encode([texts[index]])
        difference = first_difference(texts[index], document_ids(encoded, index), reference.ids)
        if difference:
            self._on_mismatch(difference)
            raise EngineError(
                f"fastokens gave wrong ids: {difference}; batches since the last check may hold wrong ids too; "
                "resume from an earlier checkpoint: the next start uses Hugging Face"
            )
