"""The library's log lines, on the standard error of a command."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["logged_from"]


@contextmanager
def logged_from(level: int) -> Iterator[None]:
    """Show log lines of ``level`` and above while inside; what is below is in what the command shows."""
    logger, handler = logging.getLogger("streamfeed"), logging.StreamHandler()
    handler.setLevel(level)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
