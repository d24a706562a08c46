"""What all commands share: help, the log lines and errors that they show, and the status that they end with."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from streamfeed.errors import ConfigError, StreamfeedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["asks_for_help", "told"]


def asks_for_help(argv: Sequence[str], usage: str) -> bool:
    """Say whether help is asked for; show ``usage`` then."""
    asked = any(word in ("-h", "--help") for word in argv)
    if asked:
        sys.stdout.write(usage)
    return asked


def told(run: Callable[[], int], level: int = logging.WARNING, interrupted: str = "interrupted") -> int:
    """Return what ``run`` does, and show the library's log lines of ``level`` and above on the standard error.

    An error is told in words: 2 for one of the settings, 1 for any other; 130 behind Ctrl-C, told as ``interrupted``.
    """
    logger, handler = logging.getLogger("streamfeed"), logging.StreamHandler()
    handler.setLevel(level)
    logger.addHandler(handler)
    try:
        return run()
    except StreamfeedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"{interrupted}\n")
        return 130
    finally:
        logger.removeHandler(handler)
