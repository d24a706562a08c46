"""How ``streamfeed trace`` looks: a line where each piece comes from, and one of its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from streamfeed.cli.trace import Traced

__all__ = ["show"]

_HEAD, _TAIL = 240, 80
"""Characters of a long text that are shown: of its beginning, and of its end."""

_AROUND = 80
"""Characters on both sides of what was found."""

_MOST = 4
"""Records of one piece that are named: a batched map function may have had many."""


def show(traced: Traced, find: str | None = None, console: Console | None = None) -> None:
    """Print a step."""
    console = console or Console(soft_wrap=True, highlight=False)
    last = traced.rows[-1]["row"] if traced.rows else traced.first_row
    head = f"step {traced.step}: rows from {traced.first_row} to {last} of the stream"
    if find is not None:
        head = f"step {traced.step}: {len(traced.rows)} row(s) with the text"
    console.print(Text(f"{head} (made again from {traced.since})", style="bold"))
    for row in traced.rows:
        rank = "" if row["rank"] is None else f", rank {row['rank']}"
        console.print(Text(f"row {row['row']} (lane {row['lane']}{rank}): {row['tokens']} tokens", style="bold"))
        for piece in row["pieces"]:
            _piece(piece, find, console)
    console.print()


def _piece(piece: dict[str, Any], find: str | None, console: Console) -> None:
    begin, end = piece["columns"]
    records = piece["records"]
    named = "; ".join(where(record) for record in records[:_MOST])
    more = f"; and {len(records) - _MOST} more records" if len(records) > _MOST else ""
    sample = f", sample {piece['sample']}" if piece["sample"] else ""
    first, last = piece["tokens"]
    line = Text(f"  {begin:>5} | ", style="dim")
    line.append(f"{named}{more}{sample}, tokens {first} to {last - 1}", style="cyan")
    console.print(line)
    console.print(Text(f"  {end - begin:>5} | ", style="dim").append(_short(piece["text"], find), style="default"))
    for record in records if "value" in records[0] else ():
        console.print(Text("  whole | ", style="dim").append(_visible(str(record["value"]))))


def where(record: dict[str, Any]) -> str:
    """Say in words where a record is."""
    place = f"record {record['record']}"
    if record["unit"] is not None:
        start, stop = record["unit"]
        place = f"record {record['record']} of part {start}-{stop}"
    if record["byte"] is not None:
        place = f"byte {record['byte']}"
    return f"{record['shard']}, {place}, epoch {record['epoch']}"


def _short(text: str, find: str | None) -> str:
    at = -1 if find is None else text.find(find)
    if find is not None and at >= 0:
        begin, end = max(0, at - _AROUND), at + len(find) + _AROUND
        return f"{'... ' if begin else ''}{_visible(text[begin:end])}{' ...' if end < len(text) else ''}"
    if len(text) <= _HEAD + _TAIL:
        return _visible(text)
    return f"{_visible(text[:_HEAD])} ... {_visible(text[-_TAIL:])}"


def _visible(text: str) -> str:
    """Keep a text on its line, and control characters off the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
