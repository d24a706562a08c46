"""Lines are cut where newlines are, however long they are."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from streamfeed.formats.lines import cut_lines


@given(st.lists(st.sampled_from([b"", b"\r", b"a", b"\n", b"x" * 300, b"y" * 9000, "é\u2028".encode()]), max_size=40))
@example([])
@example([b"x" * 300, b"\n"])
@example([b"x" * 9000, *[b"\n"] * 20])
def test_lines_are_those_of_a_split_at_newlines(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert cut_lines(data) == data.split(b"\n")
    lines = b"\n".join(parts)
    assert cut_lines(lines) == lines.split(b"\n")
