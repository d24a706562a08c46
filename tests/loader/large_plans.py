"""Plans of corpora that are too large to write, and what a loader of them needs."""

from __future__ import annotations

from typing import Any

from streamfeed.dataset.share import Share
from streamfeed.formats.shape import Shape
from streamfeed.loader.glance import Glance
from streamfeed.loader.needs import MB, Needs, needs_of
from streamfeed.plan.plan import Plan, SourcePlan
from streamfeed.plan.shards import ShardTable, UnitTable
from tests.lanes import rules

GB = 1 << 30
DEFAULTS: dict[str, Any] = {"lanes": 48, "seq_len": 2048, "shuffle_buffer": 16384, "window_bytes": 64 * MB}


def source_of(
    kind: str = "jsonl", nbytes: int = 500 * GB, url: str = "/data/{}.x", shape: Shape | None = None
) -> SourcePlan:
    """A source of 2,000 shards, each a unit."""
    count = 2000
    shards = ShardTable.build([url.format(i) for i in range(count)], [nbytes // count] * count, [kind] * count)
    units = UnitTable.build([(i, 0, -1, 0, 1, nbytes // count) for i in range(count)])
    return SourcePlan(shards, units, shape or Shape("text"), 1.0)


def plan(*sources: SourcePlan, **changes: Any) -> Plan:
    return Plan(sources or [source_of()], rules(**{**DEFAULTS, **changes}), {})


def needs(of: Plan, workers: int = 2, ranks: int = 1, **seen: Any) -> Needs:
    return needs_of(of, Share(of.lanes, 0, ranks), [Glance(**seen)] * len(of.sources), workers)
