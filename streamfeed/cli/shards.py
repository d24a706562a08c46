"""``streamfeed index`` and ``streamfeed verify``: the manifest of a folder of shards, made and held against them."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from streamfeed.cli.command import told
from streamfeed.cli.convert import options_of, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.convert.verify import Checked

__all__ = ["index", "verify"]

_SHOWN = 20


def index(argv: Sequence[str]) -> int:
    """Run ``streamfeed index``; return 0, 1 for a damaged shard, 2 for an error of the settings."""
    about = """Writes index.json for shards that are there already: records, checksums and ways in. Streams use it to
    cut tars and compressed shards for more lanes; verify holds the shards against it."""
    parser = _parser("index", about)
    parser.add_argument("--format", metavar="F", help="the shards' format, where the suffix does not say it")
    parser.add_argument("--overwrite", action="store_true", help="replace an index.json that still fits, or is foreign")
    return told(lambda: _index(parser.parse_args(argv)))


def _index(arguments: argparse.Namespace) -> int:
    from streamfeed.convert.engines import LocalEngine
    from streamfeed.convert.index import index_folder

    with shown(quiet=arguments.quiet) as progress:
        manifest = index_folder(
            arguments.folder,
            LocalEngine(arguments.workers),
            form=arguments.format,
            options=options_of(arguments.options),
            overwrite=arguments.overwrite,
            progress=progress,
        )
    if not arguments.quiet:
        sys.stdout.write(f"{len(manifest.shards):,} shard(s), {manifest.records:,} records\n")
    return 0


def verify(argv: Sequence[str]) -> int:
    """Run ``streamfeed verify``; return 0 for good shards, 1 for others, 2 for an error of the settings."""
    about = """Holds shards against their index.json: sizes, checksums, every record, keys, ways in. Says what is wrong,
    naming shard and record, and ends with 1 then."""
    parser = _parser("verify", about)
    return told(lambda: _verify(parser.parse_args(argv)))


def _verify(arguments: argparse.Namespace) -> int:
    from streamfeed.convert.engines import LocalEngine
    from streamfeed.convert.verify import verify_folder

    with shown(quiet=arguments.quiet) as progress:
        options = options_of(arguments.options)
        found = verify_folder(arguments.folder, LocalEngine(arguments.workers), options=options, progress=progress)
    return _verdict(found, quiet=arguments.quiet)


def _verdict(found: Checked, *, quiet: bool) -> int:
    for problem in found.problems[:_SHOWN]:
        sys.stderr.write(f"{problem}\n")
    if len(found.problems) > _SHOWN:
        sys.stderr.write(f"... and {len(found.problems) - _SHOWN:,} more\n")
    shards = len({problem.name for problem in found.problems})
    manifest = found.manifest
    if found.problems:
        sys.stderr.write(f"error: {shards:,} of {len(manifest.shards):,} shards are not what the manifest says\n")
        return 1
    if not quiet:
        sys.stdout.write(f"{len(manifest.shards):,} shard(s), {manifest.records:,} records: as the manifest says\n")
    return 0


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"streamfeed {name}", description=about)
    parser.add_argument("folder", metavar="FOLDER", help="a folder of shards, or its URL")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (1)")
    parser.add_argument("--options", metavar="JSON", help="fsspec's options for FOLDER")
    parser.add_argument("--quiet", action="store_true", help="show nothing but what is wrong")
    return parser
