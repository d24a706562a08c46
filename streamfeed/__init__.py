"""Train on raw text shards at once: streamed, shuffled, tokenized, packed, and resumed exactly on any topology.

The public names resolve on first use, so that importing the package costs nothing and tools run without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamfeed.config import HoldOut, RetryPolicy, Source, StreamConfig
    from streamfeed.dataset.state import merge_states
    from streamfeed.device.prefetch import DevicePrefetcher
    from streamfeed.errors import StreamfeedError
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.loader.stream_dataset import StreamDataset
    from streamfeed.objectives import Chat, Classification, Lm, Map, Mlm, PromptCompletion

__all__ = [
    "Chat",
    "Classification",
    "DevicePrefetcher",
    "HoldOut",
    "Lm",
    "Map",
    "Mlm",
    "PromptCompletion",
    "RetryPolicy",
    "Source",
    "StreamConfig",
    "StreamDataset",
    "StreamLoader",
    "StreamfeedError",
    "merge_states",
]

_HOMES = {
    "Chat": "streamfeed.objectives",
    "Classification": "streamfeed.objectives",
    "DevicePrefetcher": "streamfeed.device.prefetch",
    "HoldOut": "streamfeed.config",
    "Lm": "streamfeed.objectives",
    "Map": "streamfeed.objectives",
    "Mlm": "streamfeed.objectives",
    "PromptCompletion": "streamfeed.objectives",
    "RetryPolicy": "streamfeed.config",
    "Source": "streamfeed.config",
    "StreamConfig": "streamfeed.config",
    "StreamDataset": "streamfeed.loader.stream_dataset",
    "StreamLoader": "streamfeed.loader.loader",
    "StreamfeedError": "streamfeed.errors",
    "merge_states": "streamfeed.dataset.state",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'streamfeed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
