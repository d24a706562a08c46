"""What is a loader's own and shows through whatever stands in front of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamfeed.config import StreamConfig
    from streamfeed.encode.proof import Verdict
    from streamfeed.encode.tokenizer import TokenizerSpec
    from streamfeed.loader.loader import StreamLoader
    from streamfeed.plan.plan import Plan

__all__ = ["OfLoader"]


class OfLoader:
    """Has the settings of ``loader``, as trainers ask for them."""

    def __init__(self, loader: StreamLoader) -> None:
        self.loader = loader

    @property
    def config(self) -> StreamConfig:
        """What the stream is."""
        return self.loader.config

    @property
    def batch_size(self) -> int:
        """Rows of a batch of this rank."""
        return self.loader.batch_size

    @property
    def num_workers(self) -> int:
        """Worker processes."""
        return self.loader.num_workers

    @property
    def kept_states(self) -> int:
        """States of this many last batches, those taken ahead included, can be asked for."""
        return self.loader.kept_states

    @property
    def rank(self) -> int:
        """This data-parallel rank."""
        return self.loader.rank

    @property
    def world_size(self) -> int:
        """The number of data-parallel ranks."""
        return self.loader.world_size

    @property
    def joined(self) -> bool:
        """Whether the ranks agree in a process group."""
        return self.loader.joined

    @property
    def tokenizer(self) -> TokenizerSpec:
        """The tokenizer that the stream uses."""
        return self.loader.tokenizer

    @property
    def plan(self) -> Plan:
        """Sources, units, lanes and the fingerprint."""
        return self.loader.plan

    @property
    def verdict(self) -> Verdict:
        """The tokenizer engine that encodes, and why it is that one."""
        return self.loader.verdict
