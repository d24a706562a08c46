"""``streamfeed bench``: how fast a stream is without a model, what it costs, and whether a GPU would wait for it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfeed.cli.command import asks_for_help, told
from streamfeed.cli.own_flags import take_own, whole_number
from streamfeed.cli.plot import check_plot, plot_stages
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfeed.cli.measure import Measured
    from streamfeed.train.config import RunConfig

__all__ = ["Bench", "bench", "main"]

_USAGE = """usage: streamfeed bench [--seconds N] [--step-ms X] [--workers N,N,...] [--json] [--plot FILE.png]
                        [--config FILE] [--data.* FLAGS] [--loader.* FLAGS]

Streams for N seconds (default 10) without a model, and shows the cost of every stage, and which one holds up the
others. --step-ms sleeps for a training step of that length behind each batch, and shows for how much of the time a GPU
would have waited (the first 20 steps are not counted). --workers measures several loader.num_workers one after the
other. --json prints one object, --plot draws it. The settings are those of training: streamfeed train --help
"""


@dataclass(frozen=True)
class Bench:
    """All measurements, in the order asked for; ``step_ms`` of each batch, 0 for full speed."""

    step_ms: float
    measured: Sequence[Measured]

    @property
    def best(self) -> Measured:
        """The fastest one; of equally fast ones (within 3 %) the one with the fewest workers."""
        most = max(one.tokens_per_s for one in self.measured)
        return min((one for one in self.measured if one.tokens_per_s >= 0.97 * most), key=lambda one: one.num_workers)

    def to_json(self) -> dict[str, Any]:
        """Return the best measurement as one object, and in ``sweep`` the speed of each, where there are several."""
        found = self.best.to_json() | {"step_ms": self.step_ms}
        if len(self.measured) > 1:
            names = ("num_workers", "tokens_per_s", "data_wait_pct", "first_batch_s", "peak_rss_mb")
            found["sweep"] = [{name: getattr(one, name) for name in names} for one in self.measured]
        return found


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 for an error of the data, 2 for one of the settings."""
    return 0 if asks_for_help(argv, _USAGE) else told(lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    from streamfeed.train.flags import Arguments, parse

    own, on, words = take_own(argv, {"--seconds": "10", "--step-ms": "0", "--workers": "", "--plot": ""}, ["--json"])
    config = parse(Arguments.split(words))
    config.check()
    workers = [whole_number("--workers", one, 0) for one in own["--workers"].split(",") if own["--workers"]]
    seconds, step_ms = _positive("--seconds", own["--seconds"]), _positive("--step-ms", own["--step-ms"], least=0)
    picture = Path(own["--plot"]) if own["--plot"] else None
    if picture is not None:
        check_plot(picture)  # before the time is spent
    found = bench(config, seconds, step_ms, workers)
    if picture is not None:
        plot_stages(found.to_json(), picture)
    if "--json" in on:
        json.dump(found.to_json(), sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        from streamfeed.cli.bench_table import show

        show(found)
    return 0


def bench(config: RunConfig, seconds: float, step_ms: float = 0.0, workers: Sequence[int] = ()) -> Bench:
    """Measure the stream of ``config`` for ``seconds`` with each number of ``workers`` (left out: that of the config).

    Raises :class:`~streamfeed.errors.StreamfeedError` as training does.
    """
    from streamfeed.cli.measure import measure

    counts = workers or [config.loader.num_workers]
    return Bench(step_ms, [measure(config, count, seconds, step_ms) for count in counts])


def _positive(flag: str, value: str, least: float = 0.1) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number < float("inf"):
        raise ConfigError(f"{flag} takes a number of at least {least:g}, got {value!r}")
    return number
