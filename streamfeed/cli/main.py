"""The console script ``streamfeed``: one sub-command a job, each imported only when it is called."""

from __future__ import annotations

import difflib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sub-command named first; return its exit status, 2 for an unknown one."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_usage())
        return 0
    command = _COMMANDS.get(words[0])
    if command is None:
        near = difflib.get_close_matches(words[0], _COMMANDS, n=1, cutoff=0.0)[0]
        sys.stderr.write(f"error: there is no command {words[0]}; the nearest is {near}\n\n{_usage()}")
        return 2
    return command[1](words[1:])


def _train(words: Sequence[str]) -> int:
    from streamfeed.train.cli import main as train

    return train(words)


def _inspect(words: Sequence[str]) -> int:
    from streamfeed.cli.inspect import main as inspect

    return inspect(words)


def _trace(words: Sequence[str]) -> int:
    from streamfeed.cli.trace import main as trace

    return trace(words)


def _bench(words: Sequence[str]) -> int:
    from streamfeed.cli.bench import main as bench

    return bench(words)


def _convert(words: Sequence[str]) -> int:
    from streamfeed.cli.convert import main as convert

    return convert(words)


def _index(words: Sequence[str]) -> int:
    from streamfeed.cli.shards import index

    return index(words)


def _verify(words: Sequence[str]) -> int:
    if any(word.startswith(("--config", "--data.")) for word in words):  # a stream, by the flags of training
        from streamfeed.cli.verify_stream import main as verify_stream

        return verify_stream(words)
    from streamfeed.cli.shards import verify

    return verify(words)


def _usage() -> str:
    lines = [f"  {name:<12}{text}" for name, (text, _) in _COMMANDS.items()]
    return "usage: streamfeed COMMAND [--help | FLAGS]\n\ncommands:\n" + "\n".join(lines) + "\n"


_COMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], int]]] = {
    "train": ("train a language model or a classifier on a stream; without flags: the demo", _train),
    "inspect": ("show what the first rows of a stream decode to, without a model", _inspect),
    "trace": ("show which records the rows of a step were made of, without a log of them", _trace),
    "bench": ("measure how fast a stream is, what each stage costs, and whether a GPU would wait for it", _bench),
    "convert": ("convert shards into shards of another format, exactly", _convert),
    "index": ("write the manifest of shards that are there already", _index),
    "verify": ("hold shards against their manifest, or with --config a stream against its promise", _verify),
}
