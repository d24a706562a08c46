"""Flags and YAML files to a :class:`RunConfig`, and back.

jsonargparse does the typed parsing. Names are checked before it runs, because a wrong name deserves the nearest right
one, whichever of the two places it was written in.
"""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections import deque
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from streamfeed.errors import ConfigError
from streamfeed.storage.urls import redact
from streamfeed.train.config import RunConfig, SourceConfig
from streamfeed.train.objective_config import HELP

if typing.TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Arguments", "parse", "to_yaml"]

_OWN_FLAGS = ("config", "help", "print_config")


@dataclass(frozen=True)
class Arguments:
    """A command line in the order of its precedence: files first, then flags."""

    files: tuple[str, ...]
    flags: tuple[str, ...]

    @classmethod
    def split(cls, argv: Sequence[str]) -> Arguments:
        """Separate ``--config FILE`` from the other flags, wherever it stands. Raises :class:`ConfigError`."""
        files: list[str] = []
        flags: list[str] = []
        words = deque(argv)
        while words:
            word = words.popleft()
            if word == "--config":
                if not words:
                    raise ConfigError("--config needs the path of a YAML file")
                files.append(words.popleft())
            elif word.startswith("--config="):
                files.append(word.removeprefix("--config="))
            elif word in _switches() and (not words or words[0].startswith("--")):
                flags.append(f"{word}=true")  # what is on or off may stand alone
            else:
                flags.append(word)
        return cls(tuple(files), tuple(flags))

    def over(self, file: Path) -> Arguments:
        """Return the same arguments above the values of ``file``."""
        return Arguments((str(file), *self.files), self.flags)


def parse(arguments: Arguments, defaults: Mapping[str, Any] | None = None) -> RunConfig:
    """Read the settings: flags over files over ``defaults`` (by dotted name) over the classes' defaults.

    Raises :class:`ConfigError` for an unknown name (with the nearest known one), a wrong type, or an unreadable file.
    ``--help`` prints and exits.
    """
    for flag in arguments.flags:
        _check_flag(flag)
    for file in arguments.files:
        _check_file(Path(file))
    return _typed(arguments, defaults or {})


def to_yaml(config: RunConfig) -> str:
    """Write a config as YAML that ``--config`` accepts and that gives an equal config.

    But for ``resume``, ``profile`` and secrets: storage options are left out, and of signed URLs what signs them. A
    resume needs them given again.
    """
    values = asdict(config)
    del values["resume"], values["profile"]
    for source in [values["data"], values["eval"], *(values["data"]["sources"] or ())]:
        source.pop("storage_options", None)
        uri = source["uri"]
        source["uri"] = [redact(one) for one in uri] if isinstance(uri, list) else uri and redact(uri)
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    return text


def _typed(arguments: Arguments, defaults: Mapping[str, Any]) -> RunConfig:
    import argparse

    import jsonargparse
    from jsonargparse import ActionConfigFile  # type: ignore[attr-defined]  # public, not in its __all__

    parser = jsonargparse.ArgumentParser(
        prog="python -m streamfeed.train",
        usage="python -m streamfeed.train [--config FILE] [FLAGS]",
        description="Train a language model or a classifier on raw shards. Without data: a demo on Python's sources.",
        exit_on_error=False,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action=ActionConfigFile, help="YAML file; flags win")
    parser.add_class_arguments(RunConfig)
    parser.set_defaults(dict(defaults))
    texts = {name: text for name, text, _ in _settings(RunConfig) if text}
    for action in parser._actions:  # noqa: SLF001 - argparse's own list; there is no public way to set a help text
        action.help = texts.get(action.dest, action.help)
    words = [word for file in arguments.files for word in ("--config", file)] + list(arguments.flags)
    try:
        values = parser.parse_args(words)
        ready = parser.instantiate(values)
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        if "storage_options" not in str(error):
            raise ConfigError(_plain(str(error))) from error
    else:
        return RunConfig(**{field.name: ready[field.name] for field in fields(RunConfig)})
    raise ConfigError("storage_options: expected a mapping, as JSON or YAML: {key: ..., secret: ...}")


def _plain(message: str) -> str:
    """Say jsonargparse's message in one line: the setting, what it may be, what it is."""
    text = " ".join(message.split()).replace("<class '", "").replace("'>", "")
    key = re.match(r'Parser key "([^"]*)": ?', text)
    name, cause = (f"{key[1]}: ", text[key.end() :]) if key else ("", text)
    union = re.match(r"Does not validate against any of the Union subtypes Subtypes: \[(.*?)\] Errors: (.*)", cause)
    if union is None:
        return name + cause.replace("Expected a ", "expected ").replace("typing.", "").replace(". Got value", ", got")
    nested = re.search(r"Option '([^']*)' is not accepted", union[2])
    if nested:
        near = _nearest(nested[1], [field.name for field in fields(SourceConfig)])
        return f"{name}there is no key {nested[1]}; the nearest is {near}"
    value = re.search(r"Given value: (.*)$", union[2])
    kinds = union[1].replace("typing.", "").replace("NoneType", "null")
    # YAML reads some words as something else: in [no, yes] there is no string.
    quoted = """; write a list of words with quotes, as in '["no", "yes"]'""" if kinds.startswith("list[str]") else ""
    return f"{name}expected one of {kinds}, got {value[1] if value else union[2]}{quoted}"


def _check_flag(word: str) -> None:
    if not word.startswith("--"):
        return
    name = word[2:].partition("=")[0].removesuffix("+")
    known = [*_known(), *_OWN_FLAGS, "data.sources.help"]
    if name not in known:
        raise ConfigError(f"there is no flag --{name}; the nearest is --{_nearest(name, known)}")


def _check_file(path: Path) -> None:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path}: is no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"--config {path}: expected keys such as 'data:' and 'train:', got {type(tree).__name__}")
    known = _known()
    for name, nested in _keys(tree, ""):
        if name not in known:
            raise ConfigError(f"{path}: there is no key {name}; the nearest is {_nearest(name, known)}")
        if not nested:
            section, _, key = name.partition(".")
            raise ConfigError(f"{path}: the key {name} must be nested: '{section}:' and, indented under it, '{key}:'")
    _check_sources(path, (tree.get("data") or {}).get("sources"))


def _check_sources(path: Path, sources: object) -> None:
    names = [field.name for field in fields(SourceConfig)]
    for index, source in enumerate(sources if isinstance(sources, list) else []):
        for key in source if isinstance(source, dict) else []:
            if key not in names:
                near = _nearest(str(key), names)
                raise ConfigError(f"{path}: there is no key data.sources[{index}].{key}; the nearest is {near}")


def _keys(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, bool]]:
    sections = {name.rpartition(".")[0] for name in _known()}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        yield name, "." not in str(key)
        if name in sections and isinstance(value, dict):
            yield from _keys(value, f"{name}.")


@cache
def _known() -> tuple[str, ...]:
    return tuple(name for name, *_ in _settings(RunConfig))


@cache
def _switches() -> frozenset[str]:
    """Return the flags of settings that are on or off."""
    return frozenset(f"--{name}" for name, _, hint in _settings(RunConfig) if hint is bool)


def _settings(cls: type, prefix: str = "") -> Iterator[tuple[str, str, object]]:
    """Every setting by dotted name with its help text and type, sections included."""
    hints = typing.get_type_hints(cls)
    for field in fields(cls):
        name = f"{prefix}{field.name}"
        hint = hints[field.name]
        yield name, field.metadata.get("help") or HELP.get(name, ""), hint
        if is_dataclass(hint) and isinstance(hint, type) and not isinstance(hint, types.UnionType):
            yield from _settings(hint, f"{name}.")


def _nearest(name: str, known: Sequence[str]) -> str:
    leaf = name.replace("-", "_").rpartition(".")[2]
    same = [candidate for candidate in known if candidate.rpartition(".")[2] == leaf]
    pool = same or known
    return difflib.get_close_matches(name, pool, n=1, cutoff=0.0)[0]
