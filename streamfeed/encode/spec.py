"""A tokenizer's spec without transformers in this process: loaded in one of its own, and kept.

transformers takes tens of megabytes and seconds to import, and of a tokenizer a stream needs a few strings. What a
folder's files mean is kept by their contents and the versions that read them; a name on the Hub is asked for anew every
time, since what it means can change.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

from streamfeed.encode.child import run_main
from streamfeed.encode.tokenizer import TokenizerSpec, is_of_folder, load_tokenizer
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "tokenizer_spec"]

_LOG = logging.getLogger("streamfeed.encode")
_LAYOUT = 4
_MOST_BYTES = 64 << 20  # a larger file is weights: it is known by its size and time
_MOST_READ = 256 << 20  # bytes of all files that are read to know a folder again; where there are more, it is loaded
_TIMEOUT_S = 600


def tokenizer_spec(tokenizer: object, cache_dir: Path | None) -> TokenizerSpec:
    """Return what :func:`load_tokenizer` does, for a name or path without importing transformers here.

    Raises what that does.
    """
    if not isinstance(tokenizer, (str, Path)):
        return load_tokenizer(tokenizer)
    kept = _kept_as(Path(tokenizer).expanduser(), cache_dir)
    spec = None if kept is None else _read(kept)
    if spec is None:
        spec = load_tokenizer(tokenizer) if "transformers" in sys.modules else _elsewhere(str(tokenizer))
        if kept is not None:
            _keep(kept, spec)
    return spec


def main(arguments: Sequence[str]) -> None:
    """Load tokenizer ``NAME`` and write its spec, or what is wrong with it, to ``FILE``: the other process."""
    name, target = arguments
    found: dict[str, object]
    try:
        found = {"spec": asdict(load_tokenizer(name))}
    except ConfigError as error:
        found = {"error": str(error)}
    Path(target).write_text(json.dumps(found), encoding="utf-8")


def _elsewhere(name: str) -> TokenizerSpec:
    with tempfile.TemporaryDirectory(prefix="streamfeed-tokenizer-") as folder:
        target = Path(folder) / "spec.json"
        try:
            ended = run_main(__name__, [name, str(target)], _TIMEOUT_S)
        except TimeoutError as error:
            raise ConfigError(
                f"cannot load tokenizer {name!r}: the process that loads it took over {_TIMEOUT_S} s; "
                "download it to a folder, and name that"
            ) from error
        try:
            found = json.loads(target.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot load tokenizer {name!r}: the process that loads it ended with {ended.code}: {ended.message}"
            ) from error
    if "error" in found:
        raise ConfigError(found["error"])
    return TokenizerSpec(**found["spec"])


def _kept_as(path: Path, cache_dir: Path | None) -> Path | None:
    """Return where the spec of a folder or file is kept, None for a name on the Hub."""
    if cache_dir is None or not path.exists():
        return None
    digest = xxhash.xxh3_128(f"{_LAYOUT}:{version('transformers')}:{version('tokenizers')}:{path}\n".encode())
    left = _MOST_READ
    try:
        for file in _files(path):
            status = file.stat()
            digest.update(f"{file.name}:{status.st_size}\n".encode(errors="surrogateescape"))
            if status.st_size > _MOST_BYTES:
                digest.update(f"{status.st_mtime_ns}\n".encode())
                continue
            left -= status.st_size
            if left < 0:
                return None
            digest.update(file.read_bytes())
    except OSError:
        return None
    return cache_dir / "tokenizers" / f"{digest.hexdigest()}.json"


def _files(path: Path) -> list[Path]:
    """Return the files that decide what ``path`` means: those of its folder, or the file alone; see load_tokenizer."""
    if path.is_file() and not is_of_folder(path):
        return [path]
    folder = path if path.is_dir() else path.parent
    return sorted(file for file in folder.iterdir() if file.is_file())


def _read(path: Path) -> TokenizerSpec | None:
    try:
        return TokenizerSpec(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _keep(path: Path, spec: TokenizerSpec) -> None:
    """Write by rename; a cache that cannot be written costs a load at the next start."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(spec), file)
        Path(temporary).replace(path)
    except OSError as error:
        _LOG.warning("cannot keep the tokenizer's spec in %s: %s", path, error)
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
