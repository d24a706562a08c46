"""``streamfeed convert``: shards of any format into shards of another, exactly."""

from __future__ import annotations

import argparse
import json
import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamfeed.cli.command import told
from streamfeed.errors import ConfigError
from streamfeed.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress as Bar

    from streamfeed.convert.engines import Engine
    from streamfeed.convert.run import Conversion, Progress
    from streamfeed.convert.settings import Settings
    from streamfeed.convert.work import Done
    from streamfeed.formats.manifest import Manifest

__all__ = ["main", "options_of", "shown"]

_SIZES = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30}
_ABOUT = """Converts shards of any format into shards of one, in listed order or shuffled. The bytes of the output are a
function of the source and the settings: any number of workers, Ray, and parts give the same. Interrupted and run again,
it goes on where it was; index.json is written last."""


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 for an error of the data, 2 for one of the settings."""
    arguments = _parser().parse_args(argv)
    return told(lambda: _run(arguments), interrupted="interrupted: the same command goes on from here")


def _run(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    with shown(quiet=arguments.quiet) as progress:
        conversion = _conversion(arguments, progress)
        manifest: Manifest | None = None
        if arguments.finish:
            manifest = conversion.finish()
        elif arguments.part is not None:
            conversion.part(*_part(arguments.part))
        else:
            manifest = conversion.run()
    if manifest is not None and not arguments.quiet:
        _summary(manifest, arguments.dest, time.monotonic() - began)
    return 0


def _conversion(arguments: argparse.Namespace, progress: Progress) -> Conversion:
    from streamfeed.config import Source

    engine = _engine(arguments)
    from streamfeed.convert.run import Conversion

    source = Source(
        arguments.source.split(",") if arguments.list else arguments.source,
        text=arguments.text,
        format=arguments.format,
        storage_options=options_of(arguments.source_options),
        config=arguments.config_name,
        split=arguments.split,
    )
    return Conversion(
        source,
        arguments.dest,
        _settings(arguments),
        engine,
        options_of(arguments.dest_options),
        arguments.overwrite,
        progress,
    )


def _settings(arguments: argparse.Namespace) -> Settings:
    from streamfeed.convert.settings import Settings

    tokenizer = verdict = None
    if arguments.tokenizer is not None:
        from streamfeed.convert.tokens import check_vocabulary
        from streamfeed.encode.proof import default_cache_dir, prove
        from streamfeed.encode.spec import tokenizer_spec

        tokenizer = tokenizer_spec(arguments.tokenizer, default_cache_dir())
        check_vocabulary(tokenizer)
        verdict = prove(tokenizer, default_cache_dir())
    return Settings(
        arguments.to,
        max_records=arguments.max_records,
        max_bytes=arguments.max_bytes,
        shuffle=arguments.shuffle,
        text=arguments.text or "text",
        tokenizer=tokenizer,
        verdict=verdict,
    )


def _engine(arguments: argparse.Namespace) -> Engine:
    from streamfeed.convert.engines import LocalEngine, RayEngine

    if arguments.engine == "ray":
        return RayEngine(arguments.workers or 0)
    return LocalEngine(arguments.workers or 1, arguments.to)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="streamfeed convert", description=_ABOUT)
    parser.add_argument("source", metavar="SOURCE", help="a path, folder, glob, brace pattern or URL")
    parser.add_argument("dest", metavar="DEST", help="a folder, or a URL that fsspec writes to")
    parser.add_argument("--to", required=True, choices=("parquet", "tar", "jsonl.zst", "tokens"))
    parser.add_argument("--max-records", type=_count, metavar="N", help="records in a shard, exactly")
    parser.add_argument("--max-bytes", type=_size, metavar="N", help="bytes of records in a shard, about (256Mi)")
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="a global order by this seed")
    parser.add_argument("--tokenizer", metavar="T", help="a name or folder, for tokens")
    parser.add_argument("--text", metavar="FIELD", help="the field that holds the text (text)")
    parser.add_argument("--format", metavar="F", help="the source's format, where the suffix does not say it")
    parser.add_argument("--list", action="store_true", help="SOURCE is several, with commas between them")
    parser.add_argument("--config-name", metavar="NAME", help="the config of a whole dataset on the Hub")
    parser.add_argument("--split", metavar="NAME", help="its split")
    parser.add_argument("--workers", type=_count, metavar="N", help="processes (1); with ray, tasks at a time (all)")
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--part", metavar="I/N", help="do the I-th of N parts, as a job of an array does")
    parser.add_argument("--finish", action="store_true", help="behind all parts: write index.json")
    parser.add_argument("--overwrite", action="store_true", help="remove what an earlier conversion left in DEST")
    parser.add_argument("--source-options", metavar="JSON", help="fsspec's options for SOURCE")
    parser.add_argument("--dest-options", metavar="JSON", help="fsspec's options for DEST")
    parser.add_argument("--quiet", action="store_true", help="show nothing but errors")
    return parser


def _count(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise ValueError(text)
    return number


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]I?|)B?", text.replace("_", "").upper())
    if found is None or not int(found[1]):
        raise ValueError(text)
    return int(found[1]) * _SIZES[found[2]]


def _part(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise ConfigError(f"--part takes a part of how many, as in 3/8, got {text!r}")
    return int(index) - 1, int(count)


def options_of(text: str | None) -> dict[str, object] | None:
    """Return a store's options, given as JSON."""
    if text is None:
        return None
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):  # what was given is not shown: it may hold secrets
        raise ConfigError('options of a store are JSON, as in {"endpoint_url": "http://..."}')
    return options


@contextmanager
def shown(*, quiet: bool) -> Iterator[Progress]:
    """Return a context with what shows progress: a bar, records and MB a second."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        yield _Speed(bar)


class _Speed:
    """Shows each stage as a bar."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._stage = ""
        self._began = time.monotonic()
        self._records = self._nbytes = 0

    def __call__(self, stage: str, done: Done, tasks: int) -> None:
        """Show what a task did."""
        if stage != self._stage:
            self._stage, self._began = stage, time.monotonic()
            self._records = self._nbytes = 0
            self._task = self._bar.add_task(stage, total=tasks, speed="")
        self._records += done.records
        self._nbytes += done.nbytes
        seconds = max(time.monotonic() - self._began, 1e-3)
        speed = f"{self._records / seconds:,.0f} records/s, {self._nbytes / seconds / 1e6:,.1f} MB/s"
        self._bar.update(self._task, advance=1, speed=speed)


def _summary(manifest: Manifest, dest: str, seconds: float) -> None:
    from rich.console import Console

    tokens = "" if manifest.tokens is None else f", {manifest.tokens:,} tokens"
    nbytes = sum(shard.counted.nbytes for shard in manifest.shards)
    seconds = max(seconds, 1e-3)
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"{redact(dest)}: {len(manifest.shards):,} shard(s) of {manifest.format}, {manifest.records:,} records"
        f"{tokens}; {manifest.size / 1e6:,.1f} MB stored, {manifest.records / seconds:,.0f} records/s, "
        f"{nbytes / seconds / 1e6:,.1f} MB/s",
        markup=False,
    )
