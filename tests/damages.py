"""Shards with something wrong, one of every kind: how they are written, and what must be said of them."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from streamfeed.errors import CorruptShardError, RecordError, ShardError
from tests.corpora import as_written, csv_rows, texts_with_ids, write_shard
from tests.streams import stream

if TYPE_CHECKING:
    from streamfeed import StreamConfig

Writer = Callable[[Path, list[str]], object]

GOOD, DAMAGED = 17, 40
"""Records of the two good shards around the damaged one, and of that."""

LANES = 2


class Damage(NamedTuple):
    """A shard of one kind with something wrong: how it is written, and what must be said of it.

    ``bad`` records of it are bad, their neighbours good; where ``broken``, the rest of the shard is lost from some
    place on.
    """

    kind: str
    write: Writer
    error: type[ShardError]
    says: str
    bad: int = 0
    broken: bool = False


def lines_of(texts: list[str]) -> list[bytes]:
    return [orjson.dumps({"id": index, "text": text}) + b"\n" for index, text in enumerate(texts)]


def with_lines(*replaced: bytes) -> Callable[[list[str]], bytes]:
    """JSON Lines whose lines 5, 6, ... are these."""

    def data(texts: list[str]) -> bytes:
        lines = lines_of(texts)
        lines[5 : 5 + len(replaced)] = [line + b"\n" for line in replaced]
        return b"".join(lines)

    return data


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "jsonl": bytes,
    "jsonl.gz": gzip.compress,
    "jsonl.zst": zstandard.ZstdCompressor().compress,
}


def packed(kind: str, data: Callable[[list[str]], bytes]) -> Writer:
    def write(path: Path, texts: list[str]) -> None:
        path.write_bytes(PACKERS[kind](data(texts)))

    return write


def truncated(kind: str, share: float, **options: Any) -> Writer:
    def write(path: Path, texts: list[str]) -> None:
        write_shard(kind, path, texts, **options)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return write


def tar_of(members: Callable[[int, str], list[tuple[str, bytes]]]) -> Writer:
    def write(path: Path, texts: list[str]) -> None:
        with tarfile.open(path, "w") as archive:
            for index, text in enumerate(texts):
                for name, data in members(index, text):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))

    return write


def json_members(*replaced: bytes) -> Writer:
    """A tar whose samples 5, 6, ... have these JSON members."""

    def members(index: int, text: str) -> list[tuple[str, bytes]]:
        at = index - 5
        return [(f"{index:05}.json", replaced[at] if 0 <= at < len(replaced) else orjson.dumps({"text": text}))]

    return tar_of(members)


def parquet_of(column: Callable[[list[str]], pa.Array], name: str = "text") -> Writer:
    return lambda path, texts: pq.write_table(
        pa.table({"id": pa.array(range(len(texts))), name: column(texts)}), path, row_group_size=15
    )


def not_utf8(texts: list[str]) -> pa.Array:
    data = [text.encode() for text in texts]
    data[5], data[20] = b"\xff\xfe", b"\xed\xa0\x80 a surrogate"
    return pa.array(data, pa.binary()).view(pa.string())


def csv_with(*replaced: bytes) -> Writer:
    """CSV whose records 5, 6, ... are these."""

    def write(path: Path, texts: list[str]) -> None:
        rows = [csv_rows([text], first=index).partition(b"\r\n")[2] for index, text in enumerate(texts)]
        rows[5 : 5 + len(replaced)] = replaced
        path.write_bytes(b"".join([b"id,text\r\n", *rows]))

    return write


def arrow_of(column: Callable[[list[str]], pa.Array]) -> Writer:
    def write(path: Path, texts: list[str]) -> None:
        table = pa.table({"id": pa.array(range(len(texts))), "text": column(texts)})
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=15)

    return write


def with_a_bad_line(path: Path, texts: list[str]) -> None:
    lines = [text.encode() for text in as_written("lines", list(texts)) if text]
    lines[5] = b"\xff\xfe"
    path.write_bytes(b"\n".join(lines))


def apart(path: Path, texts: list[str]) -> None:
    """A compressed tar in which one member comes back to the first key at its end."""
    members = [(f"{index:05}.json", orjson.dumps({"text": text})) for index, text in enumerate(texts)]
    members.insert(30, ("00000.jpg", b"picture"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    path.write_bytes(gzip.compress(buffer.getvalue()))


NO_FIELD = b'{"id": 5, "body": "x"}', b'{"id": 6, "body": "y"}'
NO_STRING = b'{"text": 5}', b'{"text": ["a"]}', b'{"text": {"a": 1}}'
SURROGATE = (b'{"text": "lone \\ud800 surrogate"}',)
NO_UTF8 = (b'{"text": "\xff\xfe"}',)
NO_JSON = b'{"text": "cut', b"[1, 2]", b"}{"

DAMAGES: dict[str, Damage] = {}
_TAR_DAMAGES = (
    ("no such field", NO_FIELD, "at byte .*present: id, body"),
    ("no string", NO_STRING, "at byte .*is a number, not a string"),
    ("lone surrogate", SURROGATE, "at byte .*has a lone surrogate"),
    ("invalid UTF-8", NO_UTF8, "at byte .*'00005.json' is not valid UTF-8"),
    ("invalid JSON", NO_JSON, "at byte .*'00005.json' is not valid JSON"),
)
for _name, _members, _says in _TAR_DAMAGES:
    DAMAGES[f"tar: {_name}"] = Damage(
        "tar", json_members(*_members), RecordError, f"sample '00005' {_says}", bad=len(_members)
    )
for _kind in PACKERS:
    for _name, _lines, _says in (
        ("no such field", NO_FIELD, "there is no field 'text'; fields present: id, body"),
        ("no string", NO_STRING, "field 'text' is a number, not a string"),
        ("lone surrogate", SURROGATE, "lone surrogate, U\\+D800"),
        ("invalid UTF-8", NO_UTF8, "the line is not valid UTF-8"),
        ("invalid JSON", NO_JSON, "the line is not valid JSON"),
    ):
        DAMAGES[f"{_kind}: {_name}"] = Damage(
            _kind, packed(_kind, with_lines(*_lines)), RecordError, rf"(byte|record) .*{_says}", bad=len(_lines)
        )
DAMAGES |= {
    "jsonl: truncated": Damage("jsonl", truncated("jsonl", 0.9), RecordError, "byte .*not valid JSON", bad=1),
    "jsonl.gz: truncated": Damage(
        "jsonl.gz", truncated("jsonl.gz", 0.7, parts=1), CorruptShardError, "byte .*is cut off here", broken=True
    ),
    "jsonl.zst: truncated": Damage(
        "jsonl.zst", truncated("jsonl.zst", 0.7, parts=4), CorruptShardError, "byte .*cut off", broken=True
    ),
    "tar: truncated": Damage("tar", truncated("tar", 0.6), CorruptShardError, "byte .*", broken=True),
    "tar: truncated between members": Damage("tar", truncated("tar", 0.5), CorruptShardError, "byte .*", broken=True),
    "parquet: truncated": Damage("parquet", truncated("parquet", 0.7), CorruptShardError, "byte|footer", broken=True),
    "tar: no such member": Damage(
        "tar",
        tar_of(lambda i, text: [(f"{i:05}.{'json' if i != 5 else 'jpg'}", orjson.dumps({"text": text}))]),
        RecordError,
        "sample '00005' at byte .*no member 'json'; members present: jpg",
        bad=1,
    ),
    "arrow: truncated": Damage("arrow", truncated("arrow", 0.7), CorruptShardError, "footer", broken=True),
    "arrows: truncated": Damage("arrows", truncated("arrows", 0.7), CorruptShardError, "byte .*cut off", broken=True),
    "arrows: invalid UTF-8": Damage(
        "arrows", arrow_of(not_utf8), RecordError, r"batch at byte \d+, row 5: .*UTF-8", bad=2
    ),
    "tar.gz: truncated": Damage(
        "tar.gz", truncated("tar.gz", 0.7, parts=4), CorruptShardError, "byte .*cut off", broken=True
    ),
    "tar.gz: members apart": Damage(
        "tar.gz", apart, CorruptShardError, "byte .* of the unpacked archive: .*not beside", broken=True
    ),
    "csv: fields, quotes and UTF-8": Damage(
        "csv",
        csv_with(b"5\n", b'6,"x"y\n', b"7,\xff\n"),
        RecordError,
        "byte .*has 1 fields, and the header names 2",
        bad=3,
    ),
    "csv: truncated inside quotes": Damage(
        "csv",
        csv_with(b'5,"never closed\n', *[b"6,x\n"] * 34),
        CorruptShardError,
        "byte .*inside of the quotes",
        broken=True,
    ),
    "lines: invalid UTF-8": Damage("lines", with_a_bad_line, RecordError, "byte .*is not valid UTF-8", bad=1),
    "parquet: invalid UTF-8": Damage(
        "parquet", parquet_of(not_utf8), RecordError, "row group 0, row 5: .*UTF-8", bad=2
    ),
}


@dataclass
class Corpus:
    """Two good shards and a damaged one between them."""

    folder: Path
    kind: str
    damaged: Path

    def config(self, tokenizer: Any, **changes: Any) -> StreamConfig:
        standard = {"lanes": LANES, "epochs": 1, "shuffle_buffer": 10}
        return stream(self.folder, self.kind, tokenizer, **{**standard, **changes})


def corpus(folder: Path, kind: str, write: Writer) -> Corpus:
    texts = [text for text in texts_with_ids(2 * GOOD + DAMAGED) if text is not None]
    write_shard(kind, folder / f"0.{kind}", texts[:GOOD])
    write_shard(kind, folder / f"2.{kind}", texts[GOOD + DAMAGED :])
    write(folder / f"1.{kind}", texts[GOOD : GOOD + DAMAGED])
    return Corpus(folder, kind, folder / f"1.{kind}")
