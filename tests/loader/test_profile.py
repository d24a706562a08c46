"""The trace of a pipeline: what Perfetto is given."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from streamfeed import StreamLoader
from streamfeed.loader.profile import Profile
from tests.streams import CACHE, corpus, stream, take

if TYPE_CHECKING:
    from pathlib import Path


def events_of(profile: Profile) -> tuple[list[dict[str, Any]], dict[tuple[int, int], str]]:
    """The spans, and the names of the tracks they lie on."""
    trace = json.loads(profile.to_json())
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    tracks = {
        (event["pid"], event["tid"]): f"{names[event['pid']]}: {event['args']['name']}"
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    return [event for event in trace["traceEvents"] if event["ph"] == "X"], tracks


@pytest.mark.processes
def test_every_worker_has_a_track_and_its_spans_lie_where_they_happened(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 25, 33])
    begin = time.perf_counter()
    profile = Profile()
    with StreamLoader(
        stream(tmp_path, "jsonl", tokenizer), 4, num_workers=2, start_method="fork", cache_dir=CACHE, profile=profile
    ) as loader:
        take(loader, 30)
    took_us = (time.perf_counter() - begin) * 1e6
    spans, tracks = events_of(profile)
    assert set(tracks.values()) == {
        "trainer: data",
        *(f"worker {number}: {thread}" for number in (0, 1) for thread in ("read, encode ahead", "pack, send")),
    }
    assert {(span["pid"], span["tid"]) for span in spans} == set(tracks)
    assert all(0 <= span["ts"] <= span["ts"] + span["dur"] <= took_us for span in spans)
    ahead = {span["name"] for span in spans if tracks[span["pid"], span["tid"]] == "worker 1: read, encode ahead"}
    assert {"read", "decode", "shuffle", "encode"} <= ahead
    assert {"assemble", "wait", "receive"} <= {span["name"] for span in spans if span["pid"] == 0}
    assert sum(span["name"] == "wait" for span in spans) == 30


def test_without_workers_all_lies_on_the_trainers_track(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 25, 33])
    profile = Profile()
    with StreamLoader(stream(tmp_path, "jsonl", tokenizer), 4, cache_dir=CACHE, profile=profile) as loader:
        take(loader, 30)
    spans, tracks = events_of(profile)
    assert set(tracks.values()) == {"trainer: data"}
    assert {"list", "read", "encode", "pack", "assemble", "wait"} <= {span["name"] for span in spans}
    inner = next(span for span in spans if span["name"] == "read")
    around = [
        span for span in spans if span["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= span["ts"] + span["dur"]
    ]
    assert {"wait", "assemble", "pack", "read"} <= {span["name"] for span in around}


def test_the_first_spans_are_kept_and_the_others_counted() -> None:
    profile = Profile(most=3)
    for _ in range(5):
        with profile.stages.encode.starved:
            pass
    profile.step("step 1", time.perf_counter_ns(), 10)
    assert (len(profile), profile.dropped) == (3, 3)
    assert {span["name"] for span in events_of(profile)[0]} == {"encode starved"}
    assert json.loads(profile.to_json())["otherData"] == {"dropped": 3}


def test_a_loader_that_is_not_asked_records_nothing(tmp_path: Path, tokenizer: Any) -> None:
    corpus(tmp_path, "jsonl", [40, 25, 33])
    with StreamLoader(stream(tmp_path, "jsonl", tokenizer), 4, cache_dir=CACHE) as loader:
        take(loader, 3)
        assert loader.stages.clock.recorded is None
