"""JSON Lines under gzip and zstd: members, frames, padding and every kind of damage."""

from __future__ import annotations

import gzip
import itertools
import tracemalloc
from typing import TYPE_CHECKING

import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.formats import zst
from streamfeed.formats.compressed import CompressedLines
from streamfeed.formats.jsonl import JsonDecoder
from streamfeed.formats.protocol import WHOLE, Chunk, Cursor, Value
from streamfeed.storage.files import ShardFile
from tests.reading import until_corrupt

if TYPE_CHECKING:
    from pathlib import Path

    from streamfeed.errors import CorruptShardError

LINES = [orjson.dumps({"text": f"line {i} " + "é" * (i % 50)}) + b"\n" for i in range(400)]
TEXTS: list[Value] = [orjson.loads(line)["text"] for line in LINES]
SKIPPABLE = b"\x5a\x2a\x4d\x18\x05\x00\x00\x00hello"

START = Cursor()


def zstd(data: bytes, *, sized: bool = True, check: bool = True, level: int = 3) -> bytes:
    packer = zstandard.ZstdCompressor(level=level, write_content_size=sized, write_checksum=check).compressobj()
    return packer.compress(data) + packer.flush()


def shard(path: Path, data: bytes) -> ShardFile:
    path.write_bytes(data)
    return ShardFile(str(path), len(data))


def chunks_of(file: ShardFile, cursor: Cursor = START) -> list[Chunk]:
    form = CompressedLines(JsonDecoder("text"), "gz" if file.url.endswith("gz") else "zst")
    return list(form.read(file, WHOLE, cursor))


def values_of(file: ShardFile, cursor: Cursor = START) -> list[Value]:
    return [value for chunk in chunks_of(file, cursor) for value in chunk.values]


def collect(file: ShardFile) -> tuple[list[Value], CorruptShardError]:
    form = CompressedLines(JsonDecoder("text"), "gz" if file.url.endswith("gz") else "zst")
    return until_corrupt(form.read(file, WHOLE, Cursor()))


def test_members_may_cut_lines_and_characters_anywhere(tmp_path: Path) -> None:
    data = b"".join(LINES[:20])
    packed = b"".join(gzip.compress(data[i : i + 7]) for i in range(0, len(data), 7))
    assert values_of(shard(tmp_path / "s.jsonl.gz", packed)) == TEXTS[:20]
    assert values_of(shard(tmp_path / "p.jsonl.gz", packed + bytes(70_000))) == TEXTS[:20]


def test_frames_of_every_sort_may_cut_lines_and_characters_anywhere(tmp_path: Path) -> None:
    data = b"".join(LINES[:20])
    frames = [zstd(data[i : i + 7], sized=i % 2 == 0, check=i % 3 == 0) for i in range(0, len(data), 7)]
    packed = SKIPPABLE + zstd(b"") + SKIPPABLE.join(frames) + SKIPPABLE
    assert values_of(shard(tmp_path / "s.jsonl.zst", packed)) == TEXTS[:20]


def test_a_window_of_more_than_128_mb_is_read(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = packer.compress(b"".join(LINES)) + packer.flush()
    assert zstandard.get_frame_parameters(packed).window_size == 1 << 28
    assert values_of(shard(tmp_path / "s.jsonl.zst", packed)) == TEXTS


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_truncated_shard_gives_the_lines_before_and_then_its_byte(tmp_path: Path, kind: str) -> None:
    packed = (gzip.compress if kind == "gz" else zstd)(b"".join(LINES))
    for keep in (len(packed) - 1, len(packed) // 2, 12):
        values, error = collect(shard(tmp_path / f"s.jsonl.{kind}", packed[:keep]))
        assert values == TEXTS[: len(values)]
        assert error.where == f"byte {keep}"
        assert "cut off" in error.cause
    assert len(collect(shard(tmp_path / f"t.jsonl.{kind}", packed[:-1]))[0]) == len(TEXTS)


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_damage_and_garbage_are_errors_after_the_lines_before(tmp_path: Path, kind: str) -> None:
    pack = gzip.compress if kind == "gz" else zstd
    first = pack(b"".join(LINES[:200]))
    second = bytearray(pack(b"".join(LINES[200:])))
    second[len(second) // 2] ^= 0x55
    values, error = collect(shard(tmp_path / f"s.jsonl.{kind}", first + bytes(second)))
    assert values[:200] == TEXTS[:200]
    assert int(error.where.removeprefix("byte ")) >= len(first)
    values, error = collect(shard(tmp_path / f"g.jsonl.{kind}", first + b"garbage after the end"))
    assert values == TEXTS[:200]
    assert error.where == f"byte {len(first)}"
    assert "garbage" in error.cause


def test_a_wrong_check_sum_is_an_error(tmp_path: Path) -> None:
    for kind, packed, at in (("gz", gzip.compress(b"".join(LINES)), -6), ("zst", zstd(b"".join(LINES)), -2)):
        broken = bytearray(packed)
        broken[at] ^= 1
        assert "damaged" in collect(shard(tmp_path / f"s.jsonl.{kind}", bytes(broken)))[1].cause


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_plain_text_or_nothing_under_a_compressed_name_is_an_error(tmp_path: Path, kind: str) -> None:
    for data, cause in ((b"".join(LINES), f"no {'gzip' if kind == 'gz' else 'zstd'} data"), (b"", "empty")):
        values, error = collect(shard(tmp_path / f"s.jsonl.{kind}", data))
        assert (values, error.where) == ([], "byte 0")
        assert cause in error.cause


def test_a_read_from_a_frame_asks_for_nothing_before_it(tmp_path: Path) -> None:
    texts = [str(i) * 1000 for i in range(4000)]
    data = b"".join(orjson.dumps({"text": text}) + b"\n" for text in texts)
    packed = b"".join(zstd(data[i : i + 1_500_001], level=1) for i in range(0, len(data), 1_500_001))
    file = shard(tmp_path / "s.jsonl.zst", packed)
    last = chunks_of(file)[-1]
    assert last.seek > len(packed) // 2
    file.stats.bytes = 0
    assert values_of(file, Cursor(last.seek, last.skip)) == last.values
    assert file.stats.bytes == len(packed) - last.seek


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_a_bomb_of_blank_lines_takes_little_memory(tmp_path: Path, kind: str) -> None:
    packer = zstandard.ZstdCompressor().compressobj()
    line = b" " * 1023 + b"\n"
    if kind == "zst":
        packed = b"".join([*(packer.compress(line * 1024) for _ in range(64)), packer.flush()])
    else:
        packed = gzip.compress(line * 1024 * 64, 9)
    file = shard(tmp_path / f"s.jsonl.{kind}", packed)
    tracemalloc.start()
    assert values_of(file) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


@given(
    lines=st.lists(st.sampled_from([b'{"text":"a\xc3\xa9"}', b"", b" ", b"\r", b'{"text":null}', b"bad"]), max_size=14),
    cuts=st.lists(st.integers(0, 120), max_size=12),
    base=st.sampled_from([1, 10, 40]),
    bom=st.booleans(),
)
def test_every_cursor_is_exact_wherever_frames_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], cuts: list[int], base: int, bom: bool
) -> None:
    data = b"\xef\xbb\xbf" * bom + b"\n".join(lines)
    bounds = sorted({0, len(data), *(min(at, len(data)) for at in cuts)})
    packed = b"".join(zstd(data[i:j]) for i, j in itertools.pairwise(bounds)) or zstd(b"")
    file = shard(tmp_path_factory.getbasetemp() / "cursors.jsonl.zst", packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zst, "_BASE", base)
        whole = chunks_of(file)
        values = [value for chunk in whole for value in chunk.values]
        assert len(values) == sum(bool(line.strip()) for line in data.removeprefix(b"\xef\xbb\xbf" * bom).split(b"\n"))
        done = 0
        for chunk in whole:
            for i in range(len(chunk.values) + 1):
                assert values_of(file, Cursor(chunk.seek, chunk.skip + i)) == values[done + i :]
            done += len(chunk.values)
