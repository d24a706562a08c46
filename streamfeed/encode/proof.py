"""Whether the fast engine may be used for a tokenizer: decided by comparing ids, kept in a small cache."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streamfeed.encode.adversarial import SET_VERSION
from streamfeed.encode.child import run_main
from streamfeed.encode.trial import Outcome, thread_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfeed.encode.tokenizer import TokenizerSpec

__all__ = ["Verdict", "default_cache_dir", "disprove", "prove", "thread_environment"]

_LOG = logging.getLogger("streamfeed.encode")
_SETTINGS = {"one": 1, "default": 0}  # threads by name of the setting; 0 leaves them to the engine
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Verdict:
    """The engine to use for one tokenizer, and why."""

    engine: Literal["fastokens", "huggingface"]
    reason: str


class _InconclusiveError(Exception):
    """A trial that ended without a result; it says nothing about the next one, so it is not kept."""


def default_cache_dir(environment: Mapping[str, str] | None = None) -> Path:
    """Return ``$XDG_CACHE_HOME/streamfeed`` or ``~/.cache/streamfeed``: the one reader of the environment here."""
    root = (os.environ if environment is None else environment).get("XDG_CACHE_HOME")
    return (Path(root) if root else Path("~/.cache").expanduser()) / "streamfeed"


def prove(spec: TokenizerSpec, cache_dir: Path | None) -> Verdict:
    """Decide which engine to use for a tokenizer: fastokens only where all its ids on the adversarial set are right.

    Takes some ten seconds for a tokenizer that is new to ``cache_dir`` (None: always), in processes of its own, so that
    this one gets none of the engines' threads. Never raises for a bad engine: then the verdict is Hugging Face.
    """
    verdict = _cached(spec, cache_dir)
    if verdict is None:
        _LOG.info("proving fastokens for tokenizer %s: once per tokenizer and engine version", spec.name)
        try:
            verdict = _decide(spec)
            _keep(spec, cache_dir, verdict)
        except _InconclusiveError as error:
            verdict = Verdict("huggingface", str(error))
    level = logging.INFO if verdict.engine == "fastokens" else logging.WARNING
    _LOG.log(level, "tokenizer %s is encoded with %s: %s", spec.name, verdict.engine, verdict.reason)
    return verdict


def disprove(spec: TokenizerSpec, cache_dir: Path | None, reason: str) -> Verdict:
    """Record that fastokens gave other ids while running: from the next start on, Hugging Face encodes, and says so."""
    verdict = Verdict("huggingface", f"fastokens gave other ids in an earlier run: {reason}")
    _keep(spec, cache_dir, verdict)
    return verdict


def _decide(spec: TokenizerSpec) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="streamfeed-proof-") as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(spec.json, encoding="utf-8")
        (folder / "frame.json").write_text(json.dumps(asdict(spec.frame)), encoding="utf-8")
        for setting, threads in _SETTINGS.items():
            problem = _trial(folder, setting, "fast", str(folder), setting, str(threads)).problem
            if problem:
                return Verdict("huggingface", problem)
        outcome = _trial(folder, "reference", "reference", str(folder), *_SETTINGS)
    if outcome.problem:
        return Verdict("huggingface", outcome.problem)
    return Verdict(
        "fastokens",
        f"equal to Hugging Face on {outcome.documents} adversarial texts ({outcome.tokens / 1e6:.1f} M ids), "
        f"fastokens {version('fastokens')}, tokenizers {version('tokenizers')}",
    )


def _trial(folder: Path, result: str, *arguments: str) -> Outcome:
    """Run one trial in a process; raises :class:`_InconclusiveError` where it timed out or died."""
    try:
        ended = run_main("streamfeed.encode.trial", arguments, _TIMEOUT_S)
    except TimeoutError as error:
        raise _InconclusiveError(f"the {arguments[0]} trial of fastokens took over {_TIMEOUT_S} s") from error
    try:
        return Outcome(**json.loads((folder / f"{result}.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise _InconclusiveError(
            f"the {arguments[0]} trial of fastokens died with exit code {ended.code}: {ended.message}"
        ) from error


def _versions() -> dict[str, str]:
    return {"fastokens": version("fastokens"), "tokenizers": version("tokenizers"), "set": str(SET_VERSION)}


def _path(spec: TokenizerSpec, cache_dir: Path) -> Path:
    return cache_dir / "engines" / f"{spec.fingerprint}-{'-'.join(_versions().values())}.json"


def _cached(spec: TokenizerSpec, cache_dir: Path | None) -> Verdict | None:
    """Read a verdict; whatever cannot be read, or was made by other versions, is proven again."""
    if cache_dir is None:
        return None
    try:
        found = json.loads(_path(spec, cache_dir).read_text(encoding="utf-8"))
        engine, reason = found["engine"], found["reason"]
        if found["versions"] == _versions() and engine in {"fastokens", "huggingface"} and isinstance(reason, str):
            return Verdict(engine, reason)
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return None


def _keep(spec: TokenizerSpec, cache_dir: Path | None, verdict: Verdict) -> None:
    """Write a verdict by rename; a cache that cannot be written costs a proof at the next start, not this run."""
    if cache_dir is None:
        return
    path = _path(spec, cache_dir)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({**asdict(verdict), "versions": _versions(), "tokenizer": spec.name}, file, ensure_ascii=True)
        Path(temporary).replace(path)
    except OSError as error:
        _LOG.warning("cannot keep the verdict on fastokens in %s: %s", path, error)
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
