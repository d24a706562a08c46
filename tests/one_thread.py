"""One thread for torch, here and in what the tests start: on such small models threads only wait for each other."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"
