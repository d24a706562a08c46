"""Storage that fails on a schedule: for testing this package, and whatever reads through fsspec.

:class:`FlakyFileSystem` (protocol ``flaky``) puts faults in front of any fsspec file system::

    from streamfeed import Source
    from streamfeed.testing import Fault, Schedule, Stall, Status

    schedule = Schedule(
        [
            Fault(Status(503, retry_after=1), op="ls"),                            # the first listing
            Fault(Status(429), op="cat_file", path="*/part-3*", first=2, times=3),  # reads 2, 3 and 4 of each part-3*
        ],
        journal="calls.jsonl",  # one file for all processes; left out, the calls are kept in memory
    )
    source = Source("flaky:///data/corpus", storage_options={"schedule": schedule})
    ...
    assert sum(call.op == "ls" for call in schedule.calls()) == 2

The wrapped file system is the local one; ``target_protocol="s3"`` and ``target_options={...}`` name another. The
protocol is an entry point of this package, so worker processes find it without an import.
"""

import fsspec

from streamfeed.testing.faults import (
    Changed,
    CutBody,
    Effect,
    Expired,
    Fault,
    Latency,
    Reset,
    ShortRead,
    Stall,
    Status,
)
from streamfeed.testing.filesystem import FlakyFileSystem
from streamfeed.testing.journal import Call
from streamfeed.testing.schedule import Schedule

fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)  # also where the package is not installed

__all__ = [
    "Call",
    "Changed",
    "CutBody",
    "Effect",
    "Expired",
    "Fault",
    "FlakyFileSystem",
    "Latency",
    "Reset",
    "Schedule",
    "ShortRead",
    "Stall",
    "Status",
]
