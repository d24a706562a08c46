"""How ``streamfeed inspect`` looks: colours on a terminal, marks elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from streamfeed.cli.inspect import Inspected
    from streamfeed.cli.spans import Document, Row, Span

__all__ = ["show"]

_MARKS = ("⟦", "⟧")
_ASCII_MARKS = ("[[", "]]")
_NOT_TOKENS = {"batches", "tokens", "padding", "utilisation", "empty_rows"}


def show(found: Inspected, console: Console | None = None) -> None:
    """Print the plan, the rows and the counts."""
    console = console or Console(soft_wrap=True, highlight=False)
    _plan(found, console)
    coloured = console.is_terminal and not console.no_color
    utf8 = console.encoding.lower().replace("-", "") == "utf8"
    marks = ("", "") if coloured else _MARKS if utf8 else _ASCII_MARKS
    how = "in green" if coloured else f"in {marks[0]} {marks[1]}"
    if not found.names:
        console.print(f"Tokens with a loss are {how}; behind a mask, => is what is to be predicted.\n")
    for row in found.rows:
        _row(row, found, marks, console)
    counts = found.counts
    console.print(
        f"{counts['batches']} batch(es) read: {counts['tokens']:,} tokens, {counts['padding']:,} of padding, "
        f"{counts['utilisation']:.1%} of the room used"
    )
    others = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items() if name not in _NOT_TOKENS
    )
    if others:
        console.print(f"behind them, read ahead included: {others}", markup=False, highlight=False)


def _plan(found: Inspected, console: Console) -> None:
    stream, tokenizer = found.stream, found.stream["tokenizer"]
    for source in stream["sources"]:
        uris = ", ".join(source["uri"])
        size = f"{source['bytes'] / 1e6:,.1f} MB of {', '.join(source['formats'])}"
        console.print(f"source     {uris}: {source['shards']:,} shard(s), {size}", markup=False, highlight=False)
    ids = ", ".join(
        f"{name} {tokenizer[name]}" for name in ("bos", "eos", "pad", "mask") if tokenizer[name] is not None
    )
    console.print(
        f"tokenizer  {tokenizer['name']}: {tokenizer['vocabulary']:,} ids ({ids})", markup=False, highlight=False
    )
    console.print(f"engine     {stream['engine']}: {stream['why']}", markup=False, highlight=False)
    console.print(f"objective  {stream['objective']}", markup=False, highlight=False)
    rows = f"{stream['packing']}, {stream['seq_len']} tokens, {stream['lanes']} lane(s)"
    console.print(f"rows       {rows}", markup=False, highlight=False)


def _row(row: Row, found: Inspected, marks: tuple[str, str], console: Console) -> None:
    label = f", label {row.chosen} ({found.names[row.chosen]})" if row.chosen is not None else ""
    padding = f", {row.width - row.tokens} of padding" if row.width > row.tokens else ""
    head = f"row {row.number} (lane {row.lane}): {row.tokens} tokens{padding}, {len(row.documents)} document(s){label}"
    console.print(Text(head, style="bold"))
    for document in row.documents:
        console.print(_document(document, marks))
    console.print()


def _document(document: Document, marks: tuple[str, str]) -> Text:
    text = Text()
    text.append(f"  {document.start:>5} | ", style="dim")
    inside = False
    for span in document.spans:
        if span.label != inside:
            text.append(marks[0] if span.label else marks[1])
            inside = span.label
        text.append(_visible(span.text), style=_style(span))
        if span.target is not None:
            text.append(f"=>{_visible(span.target)}", style="bold green")
    text.append(marks[1] if inside else "")
    return text


def _style(span: Span) -> str:
    colour = "green" if span.label else "dim"
    return f"bold {colour} underline" if span.special else colour


def _visible(text: str) -> str:
    """Keep a document on its line, and control characters off the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
