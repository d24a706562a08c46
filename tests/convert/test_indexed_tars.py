"""A part of an indexed tar is read alone: the same rows as by all headers, for the bytes of the part."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import fsspec
import pytest

from streamfeed import Source
from streamfeed.convert.engines import LocalEngine
from streamfeed.convert.index import index_folder
from streamfeed.errors import CorruptShardError
from streamfeed.formats.manifest import Manifest
from streamfeed.formats.protocol import Bad, Cursor, Extent, LoneExtent, Value
from streamfeed.formats.shape import Field, Shape
from streamfeed.formats.tar import Tar
from streamfeed.plan.indexed import Indexed
from streamfeed.plan.shards import ShardTable
from streamfeed.stats import ReadStats
from streamfeed.storage.files import ShardFile
from streamfeed.storage.store import Store
from tests.convert.conversions import convert
from tests.corpora import texts_with_ids, write_corpus
from tests.reading import until_corrupt, values_in
from tests.streams import Run, documents, global_rows, stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("one_engine")

LANES = (1, 2, 3, 5)


class Named(NamedTuple):
    """A member of a tar."""

    name: str
    data: bytes = b"x"


def regular() -> list[Named]:
    """Samples with everything that a regular tar may hold: one with a text twice, one without, long names, others."""
    found = [Named("__meta__/about.json", b"{}"), Named("README", b"no sample")]
    for i in range(40):
        key = f"{'folder/' * (20 if i % 7 == 3 else 1)}{i:03}"
        found.append(Named(f"{key}.jpg", bytes(700 * (i % 3))))
        if i != 11:
            found.append(Named(f"{key}.TXT", f"text {i}".encode()))
        if i == 12:
            found.append(Named(f"{key}.txt", b"again"))
        if i == 20:
            found.append(Named(".hidden", b"between two members of a sample"))
        found.append(Named(f"{key}.json", json.dumps({"text": f"json {i}", "id": i}).encode()))
    return [*found, Named("last", b"no sample")]


def not_adjacent() -> list[Named]:
    return [Named(f"{i:03}.{kind}", f"{kind} {i}".encode()) for kind in ("txt", "json") for i in range(30)]


def doubled_far_away() -> list[Named]:
    return [*(Named(f"{i:03}.txt", f"text {i}".encode()) for i in range(30)), Named("004.txt", b"again")]


def write(path: Path, members: Sequence[Named], form: int = tarfile.GNU_FORMAT, **options: Any) -> Path:
    with tarfile.open(path, "w", format=form, **options) as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.size = len(member.data)
            tar.addfile(info, io.BytesIO(member.data))
    return path


def shard(path: Path) -> ShardFile:
    return ShardFile(str(path), path.stat().st_size)


def parts(path: Path, size: int = 1) -> list[Extent]:
    """Return the parts that the manifest beside ``path`` tells."""
    pieces = Indexed(ShardTable.build([str(path)], [path.stat().st_size], ["tar"]), None).pieces(0, size)
    return [piece.extent for piece in pieces or ()]


def by_headers(extent: Extent) -> Extent:
    """Return ``extent`` as one for which all headers of the archive are read."""
    return Extent(*extent)


@pytest.fixture(autouse=True)
def _marks_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small shards have few ways in, and are not worth cutting."""
    monkeypatch.setattr("streamfeed.convert.counts._SPACING", 1)
    monkeypatch.setattr("streamfeed.convert.counts._MOST_MARKS", 1 << 20)
    monkeypatch.setattr("streamfeed.convert.writers._SPACING", 1)
    monkeypatch.setattr("streamfeed.plan.split.LEAST_PIECE_BYTES", 100)


READERS: dict[str, str | Shape] = {
    "text": "txt",
    "field": "json.text",
    "record": Shape(fields=(Field("key", "__key__", "any"), Field("txt", "txt", "any"), Field("json", "json", "any"))),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("size", [1, 9000, 1 << 20])
def test_a_part_gives_what_all_headers_give_from_any_cursor(
    size: int, form: int, reader: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamfeed.formats.tar._CHUNK_RECORDS", 4)
    path = write(tmp_path / "a.tar", regular(), form)
    index_folder(str(tmp_path), LocalEngine())
    tar, found = Tar(READERS[reader]), 0
    for extent in parts(path, size):
        assert isinstance(extent, LoneExtent)
        chunks = list(tar.read(shard(path), by_headers(extent), Cursor()))
        assert [(one.seek, one.skip, list(one.values)) for one in tar.read(shard(path), extent, Cursor())] == [
            (one.seek, one.skip, list(one.values)) for one in chunks
        ]
        values = values_in(chunks)
        done = 0
        for chunk in chunks:
            for number in range(len(chunk.values) + 1):
                again = values_in(tar.read(shard(path), extent, Cursor(chunk.seek, number)))
                assert again == values[done + number :]
            done += len(chunk.values)
        found += done
    assert found == 40


@pytest.mark.parametrize("made", ["converted", "indexed"])
@pytest.mark.parametrize("lanes", LANES)
def test_streams_with_and_without_it_have_the_same_rows_from_every_state_of_either(
    lanes: int, made: str, tmp_path: Path, tokenizer: Any
) -> None:
    texts = texts_with_ids(60, words=12)
    folder = tmp_path / "tars"
    if made == "converted":
        write_corpus("jsonl", tmp_path / "in", texts)
        convert(tmp_path / "in", folder, "tar")
    else:
        folder.mkdir()
        write(folder / "a.tar", [Named(f"{i:03}.txt", (text or "").encode()) for i, text in enumerate(texts)])
        index_folder(str(folder), LocalEngine())
    config = stream(folder, "tar", tokenizer, epochs=2, lanes=lanes, sources=[Source(str(folder), "txt")])
    alone = (folder / "index.json").read_bytes()
    without = as_before(alone)

    def rows(manifest: bytes, state: Any = None, most: int | None = None) -> tuple[Any, Any, Run]:
        (folder / "index.json").write_bytes(manifest)
        run = Run.start(config, 1, 4, state=state)
        return global_rows(taken := run.take(most)), taken, run

    def texts_of(taken: Any) -> Counter[tuple[int, ...]]:
        return Counter(map(tuple, documents(taken, lanes, tokenizer.eos_token_id)))

    whole, taken, _ = rows(alone)
    assert whole == rows(without)[0]
    (folder / "index.json").unlink()
    assert texts_of(taken) == texts_of(Run.start(config, 1, 4).take())
    batches = len(taken[0])
    for manifest, other in ((alone, without), (without, alone)):
        for done in range(batches):
            _, _, run = rows(manifest, most=done)
            rest, _, resumed = rows(other, run.state())
            assert list(rest.values()) == list(whole.values())[done * 4 :]
            units = resumed.loaders[0].plan.sources[0].units
            assert bool(units.alone.all()) is (other == alone and lanes > 1)


def as_before(manifest: bytes) -> bytes:
    """Return a manifest as they were when nobody noted which tars are regular."""
    said = Manifest.from_bytes(manifest, "index.json")
    shards = []
    for entry in said.shards:
        there = entry.to_json()
        assert there.pop("regular") is True
        shards.append(type(entry).from_json(there))
    return Manifest(said.format, tuple(shards), said.source, said.settings).to_bytes()


@pytest.mark.parametrize("store", ["disk", "memory"])
def test_a_part_costs_about_its_bytes_and_a_resume_in_it_the_rest_of_them(store: str, tmp_path: Path) -> None:
    members = [Named(f"{i:04}.txt", f"{i:04} ".encode() * 400) for i in range(2000)]
    path = write(tmp_path / "a.tar", members)
    index_folder(str(tmp_path), LocalEngine())
    size = path.stat().st_size
    memory = fsspec.filesystem("memory")
    memory.pipe("/indexed-tars/a.tar", path.read_bytes())

    def read(extent: Extent, cursor: Cursor = Cursor()) -> tuple[list[Value], int, int]:  # noqa: B008 (immutable)
        stats = ReadStats()
        url = str(path) if store == "disk" else "memory://indexed-tars/a.tar"
        file = Store({}, stats).file(url, size)
        values = values_in(Tar("txt").read(file, extent, cursor))
        return values, stats.bytes, stats.reads

    extents = parts(path, size // 10)
    assert len(extents) >= 10
    found: list[Value] = []
    total = 0
    for extent in extents:
        values, nbytes, _ = read(extent)
        assert nbytes <= extent.stop - extent.start + 512
        total += nbytes
        found += values
    assert found == [member.data.decode() for member in members]
    assert total <= size + 512 * len(extents)
    extent = extents[5]
    middle = (extent.start + extent.stop) // 2 // 2560 * 2560  # each member has 4 blocks of data
    assert extent.start < middle < extent.stop
    values, nbytes, _ = read(extent, Cursor(middle))
    assert nbytes <= extent.stop - middle + 512
    assert len(values) == (extent.stop - middle) // 2560
    values, nbytes, _ = read(extent, Cursor(extent.start, 20))
    assert nbytes <= extent.stop - extent.start + 512
    assert len(values) == (extent.stop - extent.start) // 2560 - 20
    memory.rm("/indexed-tars", recursive=True)


def test_a_whole_pass_over_parts_reads_an_archive_once(tmp_path: Path, tokenizer: Any) -> None:
    path = write(tmp_path / "a.tar", [Named(f"{i:04}.txt", b"word " * 200) for i in range(600)])
    index_folder(str(tmp_path), LocalEngine())
    sources = [Source(str(tmp_path), "txt")]
    config = stream(tmp_path, "tar", tokenizer, epochs=1, lanes=5, seq_len=512, sources=sources)

    def nbytes() -> int:
        run = Run.start(config, 1, 8)
        run.take()
        return run.loaders[0].report().bytes_read

    alone = nbytes()
    (tmp_path / "index.json").write_bytes(as_before((tmp_path / "index.json").read_bytes()))
    assert alone <= path.stat().st_size + 5 * 512 + (64 << 10)
    assert nbytes() > alone * 1.5


IRREGULAR = {"not adjacent": not_adjacent(), "doubled": doubled_far_away(), "global": regular()}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("what", IRREGULAR)
def test_an_irregular_tar_reads_by_all_its_headers_as_without_a_manifest(
    what: str, reader: str, tmp_path: Path
) -> None:
    options = {"pax_headers": {"comment": "of all members"}} if what == "global" else {}
    path = write(tmp_path / "a.tar", IRREGULAR[what], tarfile.PAX_FORMAT, **options)
    tar = Tar(READERS[reader])
    whole = values_in(tar.read(shard(path), Extent(), Cursor()))
    manifest = index_folder(str(tmp_path), LocalEngine())
    assert manifest.shards[0].to_json().get("regular") is None
    extents = parts(path)
    assert len(extents) > 10
    assert not any(isinstance(extent, LoneExtent) for extent in extents)
    assert [value for extent in extents for value in values_in(tar.read(shard(path), extent, Cursor()))] == whole


def test_texts_of_an_irregular_tar_are_those_without_a_manifest(tmp_path: Path, tokenizer: Any) -> None:
    write(tmp_path / "a.tar", not_adjacent())
    config = stream(tmp_path, "tar", tokenizer, epochs=1, lanes=3, sources=[Source(str(tmp_path), "txt")])

    def texts() -> Counter[tuple[int, ...]]:
        return Counter(map(tuple, documents(Run.start(config, 1, 3).take(), 3, tokenizer.eos_token_id)))

    without = texts()
    index_folder(str(tmp_path), LocalEngine())
    assert texts() == without
    assert sum(without.values()) == 30


@pytest.mark.parametrize("change", ["keys", "places"])
def test_another_archive_of_the_same_bytes_behind_a_manifest_is_an_error_and_never_other_rows(
    change: str, tmp_path: Path
) -> None:
    members = [Named(f"{i:03}.txt", f"{i:03}".encode()) for i in range(40)]
    path = write(tmp_path / "a.tar", members)
    index_folder(str(tmp_path), LocalEngine())
    extents = parts(path, 9000)
    other = [Named(f"{i // 2:03}.{'txt' if i % 2 else 'json'}") for i in range(40)]
    if change == "places":
        other = [Named(f"{i:03}.txt", b"x" * 600) for i in range(27)]
    write(path, other)
    failed = 0
    for extent in extents:
        try:
            values_in(Tar("txt").read(shard(path), extent, Cursor()))
        except CorruptShardError as error:
            failed += "streamfeed index" in str(error) or "no tar header" in str(error)
    assert failed


def test_a_part_with_damage_gives_what_is_before_it_and_the_others_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", [Named(f"{i:03}.txt", f"{i:03}".encode()) for i in range(40)])
    index_folder(str(tmp_path), LocalEngine())
    first, second, third = parts(path, 20_000)[:3]
    data = bytearray(path.read_bytes())
    data[second.start + 3 * 1024 + 5] ^= 1
    path.write_bytes(data)
    values, error = until_corrupt(Tar("txt").read(shard(path), second, Cursor()))
    begin = second.start // 1024
    assert values == [f"{i:03}" for i in range(begin, begin + 3)]
    assert error.where == f"byte {second.start + 3 * 1024}"
    for extent in (first, third):
        found = values_in(Tar("txt").read(shard(path), extent, Cursor()))
        assert not any(isinstance(value, Bad) for value in found)
        assert len(found) >= (extent.stop - extent.start) // 1024 - 15
