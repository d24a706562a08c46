"""Arrow IPC that is cut off or damaged."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import CorruptShardError, FieldError
from streamfeed.formats.arrow_ipc import ArrowIpc
from streamfeed.formats.arrow_messages import read_message
from streamfeed.formats.protocol import WHOLE, Cursor
from streamfeed.storage.files import ShardFile
from tests.arrow_shards import CODECS, MAKERS, TEXTS, shard, values_of
from tests.reading import until_corrupt

if TYPE_CHECKING:
    from pathlib import Path

START = Cursor()


def test_a_truncated_stream_gives_the_rows_before_and_then_its_byte(tmp_path: Path) -> None:
    shard(tmp_path / "s", {"text": TEXTS}, "stream", rows=5)
    data = (tmp_path / "s").read_bytes()
    seen = set()
    for keep in [*range(len(data) - 40, len(data)), *range(300, len(data), 97)]:
        (tmp_path / "t").write_bytes(data[:keep])
        values, error = until_corrupt(ArrowIpc("text").read(ShardFile(str(tmp_path / "t"), keep), WHOLE, START))
        assert values == TEXTS[: len(values)]
        assert "cut off" in error.cause
        assert error.where == f"byte {keep}"
        seen.add(len(values))
    assert seen == set(range(0, 31, 5))


def test_a_truncated_file_or_another_format_is_corrupt(tmp_path: Path) -> None:
    shard(tmp_path / "s", {"text": TEXTS})
    data = (tmp_path / "s").read_bytes()
    for broken in (data[:-1], data[: len(data) // 2], data[:8], data[:-10] + b"\xff\xff\xff\x7fARROW1"):
        (tmp_path / "t").write_bytes(broken)
        file = ShardFile(str(tmp_path / "t"), len(broken))
        with pytest.raises(CorruptShardError, match="footer: this is no Arrow file, or one without its end"):
            values_of(file)
        assert ArrowIpc("text").split(file, 1) is None
    for other in (b"", b'{"text": "x"}\n', b"PAR1"):
        (tmp_path / "t").write_bytes(other)
        with pytest.raises(CorruptShardError, match=r"byte 0: .*Arrow"):
            values_of(ShardFile(str(tmp_path / "t"), len(other)))


SAMPLES = {
    "string": pa.array(TEXTS, pa.string()),
    "view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
}


@given(
    at=st.integers(0, 10_000),
    value=st.integers(0, 255),
    form=st.sampled_from(sorted(MAKERS)),
    sample=st.sampled_from(sorted(SAMPLES)),
    codec=st.sampled_from(CODECS),
)
def test_a_changed_byte_gives_other_texts_or_an_error_and_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, at: int, value: int, form: str, sample: str, codec: str | None
) -> None:
    path = tmp_path_factory.getbasetemp() / f"{form}-{sample}-{codec}"
    if not path.exists():
        shard(path, {"id": list(range(30)), "text": SAMPLES[sample]}, form, codec=codec)
    data = bytearray(path.read_bytes())
    data[at % len(data)] = value
    damaged = path.with_suffix(".damaged")
    damaged.write_bytes(data)
    file = ShardFile(str(damaged), len(data))
    with contextlib.suppress(CorruptShardError, FieldError):
        values_of(file)
    ArrowIpc("text").split(file, 100)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("says", [999, 1001, 1 << 20])
def test_a_compressed_buffer_that_holds_another_length_than_it_says_is_corrupt(
    tmp_path: Path, codec: str, says: int
) -> None:
    file = shard(tmp_path / "s", {"text": ["x" * 1000]}, "stream", codec=codec)
    with contextlib.closing(file.open()) as raw:
        schema = read_message(raw, file, 0)
        assert schema is not None
        message = read_message(raw, file, schema.end)
    assert message is not None
    assert message.batch is not None
    at = message.body + message.batch.buffers[2][0]
    data = bytearray((tmp_path / "s").read_bytes())
    data[at : at + 8] = says.to_bytes(8, "little")
    (tmp_path / "s").write_bytes(data)
    with pytest.raises(CorruptShardError, match="compressed buffer"):
        values_of(file)


@pytest.mark.parametrize("number", [-2, -(1 << 62), (1 << 62) - 1])
def test_no_number_of_the_metadata_can_crash_a_reader(tmp_path: Path, number: int) -> None:
    views = pa.array(["more than twelve bytes"], pa.string_view())
    file = shard(tmp_path / "s", {"before": views, "text": views}, "stream")
    whole = (tmp_path / "s").read_bytes()
    refused = 0
    for at in range(8, len(whole) - 8, 4):
        data = bytearray(whole)
        data[at : at + 8] = number.to_bytes(8, "little", signed=True)
        (tmp_path / "s").write_bytes(data)
        try:
            values_of(file)
        except (CorruptShardError, FieldError):
            refused += 1
    assert refused > len(whole) // 8
