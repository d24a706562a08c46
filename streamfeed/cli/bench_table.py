"""How ``streamfeed bench`` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from streamfeed.cli.bench import Bench
    from streamfeed.cli.measure import Measured, StageCost

__all__ = ["show"]


def show(bench: Bench, console: Console | None = None) -> None:
    """Print a table of stages for the best measurement, one of the numbers of workers, and what holds it up."""
    console = console or Console(soft_wrap=True, highlight=False)
    best = bench.best
    console.print(_stages(best))
    console.print(
        "\nSeconds are those of all processes together. Starved: waiting for input; blocked: waiting for room, "
        "which is time to spare.\n"
    )
    if len(bench.measured) > 1:
        console.print(_sweep(bench))
        console.print()
    pace = f"steps of {bench.step_ms:g} ms" if bench.step_ms else "full speed"
    console.print(
        f"{best.num_workers} worker(s), {pace}: {_count(best.tokens_per_s)} tokens/s over {best.seconds:.1f} s, first "
        f"batch after {best.first_batch_s:.1f} s, {_memory(best)} in all"
    )
    if bench.step_ms:
        console.print(f"a GPU with such steps would have waited for {best.data_wait_pct:.2f} % of the time")
    stage, _, why, advice = best.bottleneck
    console.print(f"bottleneck: {stage} ({why})", markup=False)
    if advice:
        console.print(f"to be faster: {advice}", markup=False)
    console.print(f"loader.num_workers {best.suggested.workers} would do: {best.suggested.why}", markup=False)


def _stages(measured: Measured) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("stage")
    for name in ("s / M tokens", "share", "busy s", "starved s", "blocked s", "items", "MB", "faults"):
        table.add_column(name, justify="right")
    for name, cost in measured.stages.items():
        bold = "bold" if name == measured.bottleneck.stage else ""
        table.add_row(name, *_cells(cost), style=bold)
    return table


def _cells(cost: StageCost) -> list[str]:
    faults = [f"{count:,} {what}" for count, what in ((cost.retries, "retries"), (cost.skips, "skipped")) if count]
    return [
        f"{cost.s_per_million_tokens:.3f}" if cost.share else "",
        f"{cost.share:.1%}" if cost.share else "",
        *(f"{seconds:.2f}" if seconds else "" for seconds in (cost.busy_s, cost.starved_s, cost.blocked_s)),
        f"{cost.items:,}" if cost.items else "",
        f"{cost.bytes / 1e6:,.1f}" if cost.bytes else "",
        ", ".join(faults),
    ]


def _sweep(bench: Bench) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("loader.num_workers", "tokens/s", "waiting", "first batch", "memory", "bottleneck"):
        table.add_column(name, justify="left" if name == "bottleneck" else "right")
    for one in bench.measured:
        table.add_row(
            str(one.num_workers),
            _count(one.tokens_per_s),
            f"{one.data_wait_pct:.1f} %",
            f"{one.first_batch_s:.1f} s",
            _memory(one),
            one.bottleneck.stage,
            style="bold" if one is bench.best else "",
        )
    return table


def _memory(measured: Measured) -> str:
    return "unknown memory" if measured.peak_rss_mb is None else f"{measured.peak_rss_mb:,.0f} MB"


def _count(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}"
