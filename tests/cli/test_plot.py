"""The picture of a bench: there, of a sensible size, with something on it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamfeed.cli.plot import plot_stages
from streamfeed.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BUSY, STARVED = (0x42, 0x69, 0xD0), (0xEF, 0xB1, 0x18)


def figures(**changes: Any) -> dict[str, Any]:
    parts = {"busy_s": 4.0, "starved_s": 1.0, "blocked_s": 0.5, "items": 7, "bytes": 1 << 20}
    names = ("list", "read", "decompress", "decode", "encode", "shuffle", "pack", "send", "receive", "assemble")
    standard = {
        "stages": {name: dict(parts) for name in names},
        "tokens_per_s": 31.4e6,
        "data_wait_pct": 0.7,
        "bottleneck": "encode",
    }
    return standard | changes


def picture(path: Path) -> NDArray[np.float64]:
    """Return the picture's colours, 0 to 255, ``[height, width, 3]``."""
    from matplotlib.image import imread

    return np.round(imread(path)[:, :, :3] * 255)


def area(found: NDArray[np.float64], colour: tuple[int, int, int]) -> int:
    """Return how many pixels have a colour."""
    return int((found == colour).all(axis=2).sum())


def test_stages_are_bars_as_long_as_their_seconds(tmp_path: Path) -> None:
    plot_stages(figures(), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    found = picture(tmp_path / "x.png")
    height, width = found.shape[:2]
    assert (width, 400 <= height <= 1200) == (960, True)
    assert 0.2 < (found == 255).mean() < 0.97, "it is neither blank nor full"
    assert area(found, BUSY) / area(found, STARVED) == pytest.approx(4, rel=0.2)


def test_a_sweep_has_a_panel_of_its_own(tmp_path: Path) -> None:
    sweep = [{"num_workers": count, "tokens_per_s": speed} for count, speed in ((2, 30e6), (0, 8e6), (1, 16e6))]
    plot_stages(figures(sweep=sweep), tmp_path / "x.png")
    found = picture(tmp_path / "x.png")
    assert found.shape[1] == 1440
    right = found[:, 900:]
    assert area(right, BUSY) > 100, "a line"
    assert area(right, STARVED) == 0, "no bars"


def test_what_took_no_time_is_drawn_too(tmp_path: Path) -> None:
    nothing = {"busy_s": 0.0, "starved_s": 0.0, "blocked_s": 0.0}
    sweep = [{"num_workers": 0, "tokens_per_s": 0.0}, {"num_workers": 1, "tokens_per_s": 0.0}]
    plot_stages(figures(stages={"read": nothing}, sweep=sweep, bottleneck=""), tmp_path / "x.PNG")
    assert picture(tmp_path / "x.PNG").shape[2] == 3


def test_without_matplotlib_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamfeed\[plot\]'"):
        plot_stages(figures(), tmp_path / "x.png")


def test_what_cannot_be_a_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"such as x\.png, not x\.svg"):
        plot_stages(figures(), tmp_path / "x.svg")
    with pytest.raises(ConfigError, match="no stages to draw"):
        plot_stages(figures(stages={}), tmp_path / "x.png")
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        plot_stages(figures(), tmp_path / "missing" / "x.png")
