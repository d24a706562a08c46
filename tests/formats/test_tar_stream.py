"""Compressed tars: the samples of the plain tar, read once from front to back."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Value
from streamfeed.formats.tar import Tar
from streamfeed.formats.tar_stream import TarStream
from streamfeed.storage.files import ShardFile
from tests.reading import until_corrupt, values_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from streamfeed.formats.compressed import Compression

START = Cursor()
PACKERS: dict[Compression, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor(level=1).compress,
}
COMPRESSIONS: list[Compression] = ["gz", "zst"]


def tar_of(members: Sequence[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def shard(path: Path, data: bytes) -> ShardFile:
    path.write_bytes(data)
    return ShardFile(str(path), len(data))


def values_of(
    path: Path, data: bytes, compression: Compression = "gz", field: str = "txt", cursor: Cursor = START
) -> list[Value]:
    return values_in(TarStream(field, compression).read(shard(path, PACKERS[compression](data)), WHOLE, cursor))


NAME = st.sampled_from(
    ["1.txt", "1.json", "2.txt", "2.TXT", "3.json", "d.e/4.txt", "__meta__", "d/._a.txt", "README", "n" * 200 + ".txt"]
)


@given(names=st.lists(NAME, max_size=10), compression=st.sampled_from(COMPRESSIONS))
def test_where_keys_are_neighbours_the_samples_are_those_of_the_plain_tar(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], compression: Compression
) -> None:
    ordered = sorted(names, key=lambda name: name.partition(".")[0])
    data = tar_of([(name, b'{"text": "j%d"}' % i) for i, name in enumerate(ordered)])
    path = tmp_path_factory.getbasetemp() / "streamed"
    for field in ("txt", "json.text"):
        wanted = values_in(Tar(field).read(shard(path, data), WHOLE, START))
        for skip in range(len(wanted) + 1):
            assert values_of(path, data, compression, field, Cursor(0, skip)) == wanted[skip:]


def test_a_member_that_is_not_beside_the_others_of_its_key_is_an_error(tmp_path: Path) -> None:
    members = [("1.txt", b"a"), ("2.txt", b"b"), ("1.json", b"{}"), ("3.txt", b"c")]
    file = shard(tmp_path / "s", gzip.compress(tar_of(members)))
    values, error = until_corrupt(TarStream("txt", "gz").read(file, WHOLE, START))
    assert values == ["a", "b"]
    assert error.where == "byte 2048 of the unpacked archive"
    assert "member '1.json' is not beside the others of its key" in error.cause


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_an_archive_cut_off_before_it_was_compressed_gives_the_samples_before(
    tmp_path: Path, compression: Compression
) -> None:
    data = tar_of([(f"{i}.txt", f"text {i}".encode()) for i in range(5)])
    for keep, whole in ((2048, 2), (2148, 2), (2560, 2), (2563, 2), (5120, 5), (5631, 5), (0, 0)):
        file = shard(tmp_path / "t", PACKERS[compression](data[:keep]))
        values, error = until_corrupt(TarStream("txt", compression).read(file, WHOLE, START))
        assert values == [f"text {i}" for i in range(whole)]
        assert error.where == f"byte {keep} of the unpacked archive"
        assert "cut off" in error.cause
    skipped = tar_of([("1.txt", b"a"), ("2.jpg", bytes(2000))])[:2000]
    values, error = until_corrupt(
        TarStream("txt", compression).read(shard(tmp_path / "t", PACKERS[compression](skipped)), WHOLE, START)
    )
    assert (values, error.where) == (["a"], "byte 2000 of the unpacked archive")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_compressed_data_that_is_cut_off_or_damaged_gives_the_samples_before(
    tmp_path: Path, compression: Compression
) -> None:
    packed = PACKERS[compression](tar_of([(f"{i:04}.txt", f"text {i}".encode() * 50) for i in range(1000)]))
    wanted = [f"text {i}" * 50 for i in range(1000)]
    for broken in (packed[: len(packed) // 2], packed[:-2], packed[:-6] + bytes(6)):
        values, error = until_corrupt(TarStream("txt", compression).read(shard(tmp_path / "t", broken), WHOLE, START))
        assert values == wanted[: len(values)]
        assert "unpacked" not in error.where
        assert len(values) > (0 if len(broken) < len(packed) - 2 else 500)


def test_a_last_sample_that_lost_its_text_to_the_cut_is_not_called_bad(tmp_path: Path) -> None:
    data = tar_of([("1.json", b"{}"), ("1.txt", b"a"), ("2.json", b"{}"), ("2.txt", b"b")])[:3072]
    values, _ = until_corrupt(TarStream("txt", "gz").read(shard(tmp_path / "t", gzip.compress(data)), WHOLE, START))
    assert values == ["a"]


def test_members_that_hold_no_text_take_no_memory_and_too_large_ones_are_bad(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamfeed.formats.samples.MEMBER_LIMIT", 1000)
        patch.setattr("streamfeed.formats.tar_stream.MEMBER_LIMIT", 1000)
        data = gzip.compress(tar_of([("1.jpg", bytes(60_000_000)), ("1.txt", b"a"), ("2.txt", bytes(20_000_000))]), 1)
        file = shard(tmp_path / "t", data)
        tracemalloc.start()
        values = values_in(TarStream("txt", "gz").read(file, WHOLE, START))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert values[0] == "a"
    assert isinstance(values[1], Bad)
    assert "20,000,000 bytes, at most 1,000 are read" in values[1].cause
    assert peak < 4 << 20


def test_second_members_of_one_extension_take_no_memory(tmp_path: Path) -> None:
    data = gzip.compress(tar_of([("1.txt", bytes(1_000_000))] * 20), 1)
    file = shard(tmp_path / "t", data)
    tracemalloc.start()
    (value,) = values_in(TarStream("txt", "gz").read(file, WHOLE, START))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(value, Bad)
    assert "two members have the same key and extension" in value.cause
    assert peak < 5 << 20


def test_what_is_no_tar_is_corrupt(tmp_path: Path) -> None:
    values, error = until_corrupt(
        TarStream("txt", "gz").read(shard(tmp_path / "t", gzip.compress(b"x" * 2000)), WHOLE, START)
    )
    assert values == []
    assert "this is no tar header" in error.cause
