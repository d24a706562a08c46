"""What ``streamfeed bench --plot`` draws: seconds of every stage, and tokens per second over numbers of workers."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["check_plot", "plot_stages"]

_PARTS = {
    "busy_s": ("at work", "#4269d0"),
    "starved_s": ("waiting for input", "#efb118"),
    "blocked_s": ("waiting for room", "#d0d0d0"),
}
_INCH_A_STAGE, _DPI = 0.32, 120


def check_plot(path: Path) -> None:
    """Raise :class:`ConfigError` where ``path`` is no name of a PNG, and where matplotlib is not installed."""
    if path.suffix.lower() != ".png":
        raise ConfigError(f"a plot is a PNG, so it has a name such as {path.with_suffix('.png').name}, not {path.name}")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ConfigError("drawing needs matplotlib: pip install 'streamfeed[plot]'") from error


def plot_stages(figures: Mapping[str, Any], path: Path) -> None:
    """Draw ``figures`` of a bench as a PNG at ``path``.

    ``stages``: by name, seconds as ``busy_s``, ``starved_s`` and ``blocked_s``, in the order of the flow; beside them
    ``tokens_per_s``, ``data_wait_pct``, ``bottleneck``, and maybe a ``sweep``: ``num_workers`` and ``tokens_per_s`` of
    every number of workers that was tried. Raises :class:`ConfigError` as :func:`check_plot`, where there are no
    stages, and where ``path`` cannot be written.
    """
    check_plot(path)
    if not figures["stages"]:
        raise ConfigError("there are no stages to draw: nothing was measured")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # no display, no state of pyplot
    from matplotlib.figure import Figure

    sweep = sorted(figures.get("sweep") or (), key=lambda one: one["num_workers"])
    height = 1.8 + _INCH_A_STAGE * len(figures["stages"])
    figure = Figure(figsize=(12 if sweep else 8, max(3.2, height)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, 2 if sweep else 1, squeeze=False, width_ratios=[3, 2] if sweep else [1])[0]
    _stages(panels[0], figures)
    if sweep:
        _sweep(panels[1], sweep)
    try:
        figure.savefig(path, format="png")
    except OSError as error:
        raise ConfigError(f"the plot {path} cannot be written: {error.strerror or error}") from error


def _stages(axes: Any, figures: Mapping[str, Any]) -> None:  # noqa: ANN401 - matplotlib's
    """Draw a bar for every stage, its parts side by side, the first stage on top."""
    names = list(figures["stages"])
    starts = [0.0] * len(names)
    for part, (label, colour) in _PARTS.items():
        widths = [float(figures["stages"][name][part]) for name in names]
        axes.barh(range(len(names)), widths, left=starts, label=label, color=colour)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    axes.set_yticks(range(len(names)), [f"{name}  ◀" if name == figures["bottleneck"] else name for name in names])
    axes.invert_yaxis()
    axes.set_xlabel("seconds, of all processes")
    axes.set_title(
        f"{figures['tokens_per_s'] / 1e6:,.1f} M tokens/s, data wait {figures['data_wait_pct']:.1f} %; "
        f"bottleneck: {figures['bottleneck']}"
    )
    axes.figure.legend(loc="outside lower left", ncols=len(_PARTS), frameon=False)


def _sweep(axes: Any, sweep: list[Mapping[str, Any]]) -> None:  # noqa: ANN401 - matplotlib's
    """Draw the speed over the number of workers, and the gain of each step."""
    counts = [int(one["num_workers"]) for one in sweep]
    speeds = [float(one["tokens_per_s"]) / 1e6 for one in sweep]
    axes.plot(counts, speeds, marker="o", color=_PARTS["busy_s"][1])
    for (_, before), (count, after) in pairwise(zip(counts, speeds, strict=True)):
        gain = f"{after / before - 1:+.0%}" if before else ""
        axes.annotate(gain, (count, after), textcoords="offset points", xytext=(0, 8), ha="center")
    axes.set_xticks(counts)
    axes.set_ylim(bottom=0, top=1.2 * max(speeds) or 1)
    axes.set_xlabel("num_workers")
    axes.set_title("M tokens/s")
    axes.grid(axis="y", alpha=0.3)
