"""What the user sees: notes, a progress bar, and the summary at the end.

On a terminal a bar; elsewhere (a log file of a cluster) one line a logged step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from streamfeed.train.schedule import Length
    from streamfeed.train.snapshot import Position

__all__ = ["Reporter"]


class Reporter:
    """Reports of one process; silent where ``enabled`` is false (all ranks but the first)."""

    def __init__(self, console: Console, *, enabled: bool = True) -> None:
        self._console = console
        self._enabled = enabled
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._total = ""
        self._by_tokens = False
        self._unit = "tokens"
        self._blamed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def silence(self) -> None:
        """Say nothing from now on."""
        self._enabled = False

    def note(self, text: str) -> None:
        """Say one sentence."""
        if self._enabled:
            self._console.print(escape(text), highlight=False)

    def begin(self, position: Position, length: Length, unit: str = "tokens") -> None:
        """Start the bar at ``position`` of a run of ``length``, as far as that is known; labels are called ``unit``."""
        self._unit = unit
        self._by_tokens = length.last_step is None and length.tokens is not None
        total = length.tokens if self._by_tokens else length.last_step
        self._total = "" if total is None or self._by_tokens else f"/{total}"
        if not (self._enabled and self._console.is_terminal):
            return
        self._bar = Progress(
            TextColumn(unit if self._by_tokens else "step"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self._console,
        )
        done = position.tokens if self._by_tokens else position.step
        self._task = self._bar.add_task("train", total=total, completed=done, figures="")
        self._bar.start()

    def step(self, step: int, tokens: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._bar.update(self._task, completed=tokens if self._by_tokens else step)

    def figures(self, line: dict[str, Any], bottleneck: str) -> None:
        """Show the figures of a logged step, and what training waits for, if it does.

        On a terminal that stands above the bar, once for each stage.
        """
        speed = f"{_count(line['tokens_per_s'])} {self._unit}/s"
        text = f"loss {line['loss']:.4f}  lr {line['lr']:.2e}  {speed}  data wait {line['data_wait_pct']:.1f} %"
        if self._bar is not None:
            self._bar.update(self._task, figures=text)
            if bottleneck and self._blamed != line["bottleneck"]:
                self._blamed = line["bottleneck"]
                self.note(f"step {line['step']}: training waits for data. {bottleneck}")
        elif bottleneck:
            self.note(f"step {line['step']}{self._total}  {text}  ({bottleneck})")
        else:
            self.note(f"step {line['step']}{self._total}  {text}")

    def scored(self, step: int, line: dict[str, Any]) -> None:
        """Show a held-out score."""
        self.note(f"step {step}{self._total}  held out: {_score(line, self._unit)}")

    def summary(self, summary: dict[str, Any]) -> None:
        """Show the end: what was learnt, how fast, where it is, how to go on."""
        if not self._enabled:
            return
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, text in _rows(summary):
            table.add_row(name, escape(text))
        self._console.print()
        self._console.print(table, soft_wrap=True)
        self._console.print(f"\nContinue with:\n  {escape(summary['resume'])}", highlight=False, soft_wrap=True)


def _rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    loss = "no step was taken"
    if summary["loss_start"] is not None:
        loss = f"{summary['loss_start']:.4f} at the start, {summary['loss_end']:.4f} at the end"
    rows = [
        ("steps", f"{summary['step']:,} (ended by {summary['ended_by']})"),
        ("loss", loss),
        (summary["unit"], f"{summary['tokens']:,} labels trained on"),
        ("speed", f"{_count(summary['tokens_per_s'])} {summary['unit']}/s over {summary['seconds']:.0f} s"),
        ("data wait", f"{summary['data_wait_pct']:.1f} % of step time"),
        ("checkpoint", str(summary["checkpoint"])),
    ]
    if summary["bottleneck"]:
        rows.insert(-1, ("waited for", summary["bottleneck"]))
    if "eval_loss" in summary:
        rows.insert(2, ("held out", _score(summary, summary["unit"])))
    if summary["not_trained_on"]:
        rows.insert(-3, ("not trained on", summary["not_trained_on"]))
    if summary["noted"]:
        rows.insert(-3, ("of the data", summary["noted"]))
    if summary["skipped_rows"]:
        rows.insert(-3, ("stepped over", f"{summary['skipped_rows']:,} rows (train.skip_rows)"))
    return rows


def _score(line: dict[str, Any], unit: str) -> str:
    right = f", accuracy {line['eval_accuracy']:.4f}" if "eval_accuracy" in line else ""
    return f"loss {line['eval_loss']:.4f}{right} on {line['eval_labels']:,} {unit}"


def _count(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"
