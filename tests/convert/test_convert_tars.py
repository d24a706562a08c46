"""Samples and records: keys that stay inside, and members that are what records say."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfeed.convert.rows import Sample, sample_rows, samples_of
from streamfeed.convert.tars import Keys, record_of
from streamfeed.convert.writers import Members
from streamfeed.errors import RecordError
from streamfeed.formats.protocol import Bad
from streamfeed.formats.samples import sample_of
from tests.convert.conversions import contents, convert
from tests.corpora import write_record_corpus

if TYPE_CHECKING:
    from pathlib import Path

EVIL = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "..",
    ".",
    "a//b",
    "a.b/c",
    "a\\..\\b",
    "",
    "x" * 500,
    "é/ü",
    "a/",
]


def test_keys_that_lead_out_of_a_folder_stay_inside_of_it(tmp_path: Path) -> None:
    rows = [{"__key__": key, "text": f"id={i}"} for i, key in enumerate([*EVIL, "good/key", "good/key", "GOOD/key"])]
    write_record_corpus("jsonl", tmp_path / "in", rows)
    convert(tmp_path / "in", tmp_path / "out", "tar")
    with tarfile.open(tmp_path / "out" / "shard-00000.tar") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
        names = archive.getnames()
    assert len({name.lower() for name in names}) == len(names) == len(rows)
    assert {"good/key.txt", "good/key-000000013.txt", "GOOD/key-000000014.txt"} <= set(names)
    assert [record["text"] for record in contents(tmp_path / "out")] == [f"id={i}" for i in range(len(rows))]


@given(st.lists(st.none() | st.text() | st.sampled_from(EVIL), max_size=20))
def test_every_key_is_one_sample_s_own_and_leads_nowhere(wanted: list[str | None]) -> None:
    keys = Keys()
    given_keys = [keys.key(one, number) for number, one in enumerate(wanted)]
    assert len({key.lower() for key in given_keys}) == len(wanted)
    for key in given_keys:
        assert sample_of(f"{key}.txt") == (key, "txt")
        assert not key.startswith("/")
        assert ".." not in key.split("/")
        assert "\0" not in key


def test_members_that_say_two_things_of_a_field_are_an_error_and_not_a_choice(tmp_path: Path) -> None:
    same = Sample("k", {"json": b'{"cls":3,"text":"a"}', "cls": b"3", "txt": b"a"})
    assert record_of(same, "text") == {"__key__": "k", "cls": 3, "text": "a"}
    other = record_of(Sample("k", {"json": b'{"text":"a"}', "txt": b"b"}), "text")
    assert other == {"__key__": "k", "text": "a", "txt": "b"}
    bad = record_of(Sample("k", {"json": b'{"cls":3}', "cls": b"4"}), "text")
    assert isinstance(bad, Bad)
    assert "the member '.cls' and the field 'cls' of '.json' are not the same" in bad.cause
    for data in (b"{", b"\xff"):
        assert isinstance(record_of(Sample("k", {"json": data}), "text"), Bad)
    assert isinstance(record_of(Sample("k", {"txt": b"\xff"}), "text"), Bad)


def test_a_record_that_is_not_unicode_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text":"a"}\n{"text":"\\ud800"}\n')
    for to in ("tar", "parquet"):
        with pytest.raises(RecordError, match=r"a\.jsonl, record 1"):
            convert(tmp_path / "a.jsonl", tmp_path / to, to)


@given(
    st.lists(
        st.builds(Sample, st.text(st.characters(exclude_categories=["Cs"])), st.dictionaries(st.text(), st.binary()))
    ),
    st.integers(0, 5),
)
def test_samples_come_out_of_arrow_as_they_went_in(samples: list[Sample], start: int) -> None:
    samples = [Sample(one.key, {name: data for name, data in one.members.items() if name.isascii()}) for one in samples]
    rows = sample_rows(samples)
    assert samples_of(rows) == samples
    assert samples_of(rows.part(min(start, len(rows)), len(rows))) == samples[start:]


def test_members_are_written_byte_for_byte_as_tarfile_writes_them() -> None:
    members = [("a.txt", b"x"), ("k" * 100, b""), ("k" * 101, b"y" * 600), ("ü/é.json", b"{}" * 300), ("b", b"z" * 512)]
    found, expected = io.BytesIO(), io.BytesIO()
    for buffer, fast in ((found, True), (expected, False)):
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
            add = Members(archive).add if fast else archive.addfile
            for name, data in members:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o644
                add(member, io.BytesIO(data))
    assert found.getvalue() == expected.getvalue()
