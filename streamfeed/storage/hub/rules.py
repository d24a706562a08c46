"""Which files of a repository are a dataset's, by the rules of ``datasets`` itself.

The rules are run on this machine over a folder of empty files named as the repository's, so that no request of theirs
can fail: ``datasets`` takes a throttled ``.huggingface.yaml`` for a missing one, and a repository that it cannot reach
for one that it has in its cache. They read names and the two files of settings, nothing else.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from streamfeed.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["SETTINGS", "Chosen", "choose"]

SETTINGS = ("README.md", ".huggingface.yaml")
"""The files whose content the rules read."""

_REFUSED = {"pandas": "its files are pickles, which run code", "sql": "it opens databases"}
_NOT_SETTINGS = {"name", "version", "data_dir", "data_files", "description"}


@dataclass(frozen=True)
class Chosen:
    """What a dataset, one of its configs and one of its splits mean.

    ``module`` is the builder of ``datasets`` that reads it ("parquet", "json", ...), ``settings`` what the repository
    sets of it, as JSON, ``files`` its files in order, relative to the repository.
    """

    config: str
    split: str
    module: str
    files: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)


def choose(
    repo: str,
    paths: Iterable[str],
    contents: Mapping[str, bytes],
    config: str | None = None,
    split: str | None = None,
) -> Chosen:
    """Return what ``config`` (None: the default one) and ``split`` (None: ``train``, or the only one) are made of.

    ``paths`` are all files of the repository ``repo``, ``contents`` what is in those of :data:`SETTINGS` (and in
    archives whose names of members decide). Raises :class:`~streamfeed.errors.SourceError`, naming what there is,
    where the rules find no data, or no such config or split.
    """
    with tempfile.TemporaryDirectory(prefix="streamfeed-hub-") as scratch:
        # The repository's own name: a script of that name is refused by the rules, as on the Hub.
        root = Path(scratch) / "repo" / repo.rpartition("/")[2]
        root.mkdir(parents=True)
        _write(root, repo, paths, contents)
        builder = _builder(root, repo, config, Path(scratch) / "cache")
        data_files = {str(name): list(files) for name, files in (builder.config.data_files or {}).items()}
        name = _split(repo, split, list(data_files))
        module = type(builder).__module__.rpartition(".")[2]
        if module in _REFUSED:
            raise SourceError(f"hf://datasets/{repo}: the {module} builder is not used: {_REFUSED[module]}")
        files = [_relative(root, repo, file) for file in data_files[name]]
        return Chosen(str(builder.config.name), name, module, files, _settings(builder.config, repo))


def _write(root: Path, repo: str, paths: Iterable[str], contents: Mapping[str, bytes]) -> None:
    made = {root}
    for path in paths:
        if path == "README.md" and not contents.get(path, b"").lstrip(b"\xef\xbb\xbf").startswith(b"---"):
            continue  # it sets nothing, and would be warned of
        parts = PurePosixPath(path).parts
        if not parts or ".." in parts or path.startswith("/") or "\0" in path:
            raise SourceError(f"hf://datasets/{repo}: the Hub lists a file outside of the repository: {path!r}")
        target = root / path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        content = contents.get(path, b"")
        with target.open("xb") as file:
            file.write(content)
    for name in SETTINGS:
        if name in contents:
            _check(repo, name, contents[name].decode("utf-8", errors="replace"))


def _check(repo: str, name: str, text: str) -> None:
    """Refuse settings whose patterns leave the repository: here they would search this machine, or the network."""
    import yaml

    if name == "README.md":
        lines = text.lstrip("\ufeff").splitlines()
        if not lines or lines[0].strip() != "---":
            return
        end = next((i for i, line in enumerate(lines[1:], 1) if line.strip() == "---"), len(lines))
        text = "\n".join(lines[1:end])
    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SourceError(f"hf://datasets/{repo}: {name} is no YAML: {error}") from error
    for configs in (settings or {}).get("configs") or [] if isinstance(settings, dict) else []:
        for key in ("data_files", "data_dir"):
            for pattern in _strings(configs.get(key) if isinstance(configs, dict) else None):
                if "://" in pattern or "::" in pattern or os.path.isabs(pattern) or ".." in pattern.split("/"):  # noqa: PTH117
                    raise SourceError(
                        f"hf://datasets/{repo}: {name} names data outside of the repository ({pattern}); "
                        "name the files themselves as the source"
                    )


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "split":
                yield from _strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)


def _builder(root: Path, repo: str, config: str | None, cache: Path) -> Any:  # noqa: ANN401
    import datasets

    try:
        return datasets.load_dataset_builder(str(root), config, cache_dir=str(cache))
    except Exception as error:  # noqa: BLE001 - its errors are of a dozen kinds
        cause = " ".join(str(error).replace(str(root), f"hf://datasets/{repo}").split())
        advice = "; name a config with Source(config=...)" if "Config name is missing" in cause else ""
        advice = advice or "; name the files themselves, as in hf://datasets/org/name/path/*.parquet"
        raise SourceError(f"hf://datasets/{repo}: `datasets` finds no data in it: {cause}{advice}") from None


def _split(repo: str, split: str | None, names: list[str]) -> str:
    wanted = split or ("train" if "train" in names or len(names) != 1 else names[0])
    if wanted not in names:
        cause = f"there is no split {wanted!r}" if split else "there are several splits, and none is 'train'"
        raise SourceError(f"hf://datasets/{repo}: {cause}; Source(split=...) can be one of {', '.join(names)}")
    return wanted


def _relative(root: Path, repo: str, file: str) -> str:
    try:
        return Path(file).relative_to(root.resolve()).as_posix()
    except ValueError:
        raise SourceError(f"hf://datasets/{repo}: its settings name data outside of the repository: {file}") from None


def _settings(config: Any, repo: str) -> dict[str, Any]:  # noqa: ANN401
    """Return what differs from the builder's defaults; all of it came from YAML."""
    import json

    default = vars(type(config)())
    found = {
        name: value for name, value in vars(config).items() if name not in _NOT_SETTINGS and default.get(name) != value
    }
    if "features" in found:
        found["features"] = found["features"].to_dict()
    try:
        json.dumps(found)
    except TypeError as error:
        raise SourceError(f"hf://datasets/{repo}: settings of its README cannot be passed on: {error}") from error
    return found
