"""WebDataset tars: names, keys, traps, and damage."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.errors import CorruptShardError
from streamfeed.formats.members import walk
from streamfeed.formats.protocol import WHOLE, Bad, Cursor, Extent, Value
from streamfeed.formats.samples import key_and_extension
from streamfeed.formats.tar import Tar
from streamfeed.storage.files import ShardFile
from tests.reading import until_corrupt

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START = Cursor()


def archive(
    path: Path, members: Sequence[tuple[str, bytes] | tarfile.TarInfo], form: int = tarfile.PAX_FORMAT
) -> ShardFile:
    with tarfile.open(path, "w", format=form) as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    return ShardFile(str(path), path.stat().st_size)


def values_of(file: ShardFile, field: str = "txt", extent: Extent = WHOLE, cursor: Cursor = START) -> list[Value]:
    return [value for chunk in Tar(field).read(file, extent, cursor) for value in chunk.values]


def causes_of(values: list[Value]) -> list[str]:
    return [value.cause for value in values if isinstance(value, Bad)]


@given(st.text(alphabet="ab./_\n~é", max_size=12))
def test_keys_and_extensions_are_those_of_webdataset(name: str) -> None:
    from webdataset.tariterators import base_plus_ext

    key, extension = base_plus_ext(name)
    assert key_and_extension(name) == (None if key is None else (key, extension))


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_are_those_of_tarfile_in_every_format(tmp_path: Path, form: int) -> None:
    names = ["a.txt", "x" * 60 + "/" + "y" * 90 + ".txt", "d/é漢.txt", "./b.txt", "c.d/e.txt"]
    if form != tarfile.USTAR_FORMAT:
        names += ["n" * 300 + ".txt", ("f" * 90 + "/") * 4 + "x.txt"]
    link = tarfile.TarInfo("link.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "l" * (150 if form != tarfile.USTAR_FORMAT else 20)
    folder = tarfile.TarInfo("folder")
    folder.type = tarfile.DIRTYPE
    members = [(name, name.encode() * 3) for name in names]
    file = archive(tmp_path / "s.tar", [folder, *members[:3], link, *members[3:]], form)
    with tarfile.open(file.url) as tar, file.open() as raw:
        wanted = [(info.name, info.offset, info.offset_data, info.size) for info in tar if info.isreg()]
        assert [tuple(member) for member in walk(raw, file)] == wanted
    assert [member[0] for member in wanted] == names
    assert values_of(file) == names_thrice(names)


def names_thrice(names: list[str]) -> list[str]:
    return [name * 3 for name in names]


def with_extended_header(path: Path, payload: bytes) -> ShardFile:
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(payload)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(header, io.BytesIO(payload))
        tar.addfile(tarfile.TarInfo("1.txt"))
    return ShardFile(str(path), path.stat().st_size)


def test_a_number_too_long_to_be_one_is_damage_of_its_member_or_no_number(tmp_path: Path) -> None:
    with pytest.raises(CorruptShardError, match=r"the member's size is '9{40}'"):
        values_of(with_extended_header(tmp_path / "p.tar", b"5016 size=" + b"9" * 5005 + b"\n"))
    assert values_of(with_extended_header(tmp_path / "p.tar", b"9" * 5000 + b" size=1\n")) == [""]


def test_base_256_and_pax_sizes_are_understood(tmp_path: Path) -> None:
    file = archive(tmp_path / "s.tar", [("a.txt", b"x" * 700), ("b.txt", b"y")], tarfile.GNU_FORMAT)
    data = bytearray((tmp_path / "s.tar").read_bytes())
    data[124:136] = b"\x80" + (700).to_bytes(11, "big")
    data[148:156] = b" " * 8
    data[148:156] = f"{sum(data[:512]):06o}\0 ".encode()
    (tmp_path / "s.tar").write_bytes(data)
    assert values_of(file) == ["x" * 700, "y"]
    info = tarfile.TarInfo("a.txt")
    info.pax_headers = {"size": "700"}
    with tarfile.open(tmp_path / "p.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        info.size = 700
        tar.addfile(info, io.BytesIO(b"x" * 700))
    assert values_of(ShardFile(str(tmp_path / "p.tar"), (tmp_path / "p.tar").stat().st_size)) == ["x" * 700]


def test_members_of_one_key_need_not_be_neighbours(tmp_path: Path) -> None:
    members = [
        ("1.json", b'{"text": "j1"}'),
        ("2.txt", b"t2"),
        ("1.txt", b"t1"),
        ("2.json", b'{"text": "j2"}'),
        ("3.txt", b"t3"),
    ]
    file = archive(tmp_path / "s.tar", members)
    assert values_of(file) == ["t1", "t2", "t3"]
    pieces = Tar("txt").split(file, 1)
    assert pieces is not None
    assert [values_of(file, extent=piece.extent) for piece in pieces] == [["t1"], ["t2"], ["t3"]]


def test_a_dot_in_a_folder_name_splits_no_key(tmp_path: Path) -> None:
    members = [("v1.0/a.txt", b"1"), ("v1.0/b.txt", b"2"), ("v1.1/a.txt", b"3")]
    assert values_of(archive(tmp_path / "s.tar", members)) == ["1", "2", "3"]


def test_meta_hidden_and_nameless_members_are_no_samples(tmp_path: Path) -> None:
    members = [
        ("__meta__", b"{}"),
        ("__x__/a.txt", b"no"),
        ("d/._a.txt", b"no"),
        (".b.txt", b"no"),
        ("README", b"no"),
        ("a.txt", b"yes"),
    ]
    assert values_of(archive(tmp_path / "s.tar", members)) == ["yes"]


def test_double_members_are_a_bad_record_that_names_both(tmp_path: Path) -> None:
    members = [("1.txt", b"a"), ("2.txt", b"b"), ("1.TXT", b"c"), ("3.txt", b"d")]
    values = values_of(archive(tmp_path / "s.tar", members))
    assert values[1:] == ["b", "d"]
    assert causes_of(values) == [
        "two members have the same key and extension: '1.txt' at byte 0 and '1.TXT' at byte 2048"
    ]


def test_a_field_is_a_member_or_a_path_into_its_json(tmp_path: Path) -> None:
    record = orjson.dumps({"text": "j", "meta": {"body": "m", "none": None}, "id": 3})
    file = archive(tmp_path / "s.tar", [("1.JSON", record), ("1.seg.txt", b"s"), ("1.txt", b"t")])
    found = {
        field: values_of(file, field)
        for field in ("txt", "TXT", "seg.txt", "json.text", "json.meta.body", "json.meta.none")
    }
    assert list(found.values()) == [["t"], ["t"], ["s"], ["j"], ["m"], [None]]
    assert causes_of(values_of(file, "json.id")) == ["field 'id' is a number, not a string"]
    assert causes_of(values_of(file, "json.body")) == ["there is no field 'body'; fields present: text, meta, id"]
    assert causes_of(values_of(file, "cap")) == ["there is no member 'cap'; members present: json, seg.txt, txt"]
    assert causes_of(values_of(file, "text")) == ["there is no member 'text'; members present: json, seg.txt, txt"]


def test_bad_members_are_bad_records_and_their_neighbours_are_read(tmp_path: Path) -> None:
    members = [
        ("1.txt", b"a\xff"),
        ("2.txt", b"ok"),
        ("3.json", b"{"),
        ("4.json", b'{"text": "\\ud800"}'),
        ("5.json", b'{"text": "x", "n": NaN}'),
    ]
    file = archive(tmp_path / "s.tar", members)
    values = values_of(file, "txt")
    assert values[1] == "ok"
    assert isinstance(values[0], Bad)
    assert values[0].where == "sample '1' at byte 0"
    assert "not valid UTF-8: invalid start byte at its byte 1" in values[0].cause
    values = values_of(file, "json.text")
    assert values[4] == "x"
    assert "not valid JSON" in causes_of(values)[2]
    assert "lone surrogate, U+D800" in causes_of(values)[3]


def test_a_truncated_archive_gives_the_samples_before_and_then_its_byte(tmp_path: Path) -> None:
    archive(tmp_path / "s.tar", [(f"{i}.txt", f"text {i}".encode()) for i in range(5)])
    data = (tmp_path / "s.tar").read_bytes()
    for keep, whole in (
        (2048, 2),
        (2048 + 100, 2),
        (2048 + 512, 2),
        (2048 + 515, 2),
        (5120, 5),
        (5120 + 511, 5),
        (0, 0),
    ):
        (tmp_path / "t.tar").write_bytes(data[:keep])
        file = ShardFile(str(tmp_path / "t.tar"), keep)
        values, error = until_corrupt(Tar("txt").read(file, WHOLE, START))
        assert values == [f"text {i}" for i in range(whole)]
        assert error.where == f"byte {keep}"
        assert "cut off" in error.cause
        assert Tar("txt").split(file, 1) is None
    (tmp_path / "t.tar").write_bytes(data[: 5120 + 512])
    assert len(values_of(ShardFile(str(tmp_path / "t.tar"), 5120 + 512))) == 5


def test_a_last_sample_that_lost_its_text_to_the_cut_is_not_called_bad(tmp_path: Path) -> None:
    archive(tmp_path / "s.tar", [("1.json", b"{}"), ("1.txt", b"a"), ("2.json", b"{}"), ("2.txt", b"b")])
    data = (tmp_path / "s.tar").read_bytes()[:3072]
    (tmp_path / "t.tar").write_bytes(data)
    values, _ = until_corrupt(Tar("txt").read(ShardFile(str(tmp_path / "t.tar"), len(data)), WHOLE, START))
    assert values == ["a"]


def test_damage_and_another_format_are_corrupt(tmp_path: Path) -> None:
    file = archive(tmp_path / "s.tar", [("1.txt", b"a"), ("2.txt", b"b")])
    data = bytearray((tmp_path / "s.tar").read_bytes())
    data[1024 + 5] ^= 1
    (tmp_path / "s.tar").write_bytes(data)
    with pytest.raises(CorruptShardError, match="byte 1024: this is no tar header"):
        values_of(file)
    (tmp_path / "g.tar").write_bytes(b"\x1f\x8b" + b"x" * 600)
    with pytest.raises(CorruptShardError, match="byte 0: this is no tar header"):
        values_of(ShardFile(str(tmp_path / "g.tar"), 602))


def test_a_seek_reads_headers_alone_before_it_and_never_the_other_members(tmp_path: Path) -> None:
    members = [(f"{i:02}.{kind}", bytes(size)) for i in range(20) for kind, size in (("jpg", 100_000), ("txt", 1000))]
    file = archive(tmp_path / "s.tar", members)
    whole = [
        chunk for piece in Tar("txt").split(file, 1000) or [] for chunk in Tar("txt").read(file, piece.extent, START)
    ]
    assert len(whole) == 20
    file.stats.bytes = 0
    assert len(values_of(file, cursor=Cursor(whole[18].seek))) == 2
    assert file.stats.bytes == 41 * 512 + 2 * 1000
