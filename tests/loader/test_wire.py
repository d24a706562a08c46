"""Headers and failures between a worker and the trainer."""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import RecordError, StreamfeedError, WorkerError
from streamfeed.loader.wire import Header, failure, read_failure

numbers = st.integers(-(2**63), 2**63 - 1)


@given(numbers, numbers, numbers, numbers, st.binary(), numbers, st.binary(), st.lists(st.binary(), max_size=3))
def test_a_header_arrives_as_it_was_sent(
    slot: int, rows: int, starts: int, nbytes: int, payload: bytes, retries: int, work: bytes, spans: list[bytes]
) -> None:
    header = Header(slot, rows, starts, nbytes, payload, retries, work, tuple(spans))
    assert Header.unpack(header.pack()) == header


def arrived(error: BaseException) -> BaseException:
    """Raise and send ``error`` as a worker does."""
    try:
        raise error
    except BaseException as raised:  # noqa: BLE001 - as in a worker
        return read_failure(Header.unpack(failure(raised).pack()), 3)


def test_our_own_errors_arrive_as_themselves_with_the_workers_traceback() -> None:
    error = arrived(RecordError("corpus/a.jsonl", "record 12", "invalid JSON", "mend it"))
    assert isinstance(error, RecordError)
    assert (error.shard, error.where, error.cause, error.advice) == (
        "corpus/a.jsonl",
        "record 12",
        "invalid JSON",
        "mend it",
    )
    (note,) = error.__notes__
    assert note.startswith("raised in worker 3:\nTraceback")
    assert "in arrived" in note


class UnpicklableError(StreamfeedError):
    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle this")


class OneWayError(StreamfeedError):
    """Pickles, and does not come back."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def local_error() -> Exception:
    class LocalError(Exception):
        pass

    return LocalError("boo")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("boo"), "ValueError: boo"),
        (UnpicklableError("boo"), "UnpicklableError: boo"),
        (OneWayError("boo"), "OneWayError: boo"),
        (local_error(), "LocalError: boo"),
        (UnprintableError(), "UnprintableError"),
        (SystemExit(3), "SystemExit: 3"),
        (ValueError("a\nb"), "ValueError: a\nb"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_other_exception_arrives_as_text(error: BaseException, said: str) -> None:
    found = arrived(error)
    assert isinstance(found, WorkerError)
    assert "worker 3 raised" in str(found)
    assert said in str(found)
    assert "in arrived" in found.details
    assert pickle.loads(pickle.dumps(found)).details == found.details
