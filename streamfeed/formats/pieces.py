"""Lines of a decompressed stream, each with the cursor that finds it again.

A cursor ``(base, k)`` means: decompress from compressed byte ``base`` on, cut at the newlines, pass the first ``k``
pieces (those that are not blank, where blank lines are no records). The first piece may be the end of a line that began
in a frame before; it counts like any other, so that counting needs nothing from before ``base``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streamfeed.errors import CorruptShardError
from streamfeed.formats.lines import BLOCK, BOM, LINE_LIMIT, cut_lines, is_blank, line_too_long

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LineCutter", "Run", "Step", "coalesced"]


class Step(NamedTuple):
    """Decompressed bytes, in order; ``base`` is the compressed byte that cursors into them seek."""

    base: int
    data: bytes


class Run(NamedTuple):
    """Consecutive lines that are records: ``lines[i]`` stands at cursor ``(seek, skip + i)``."""

    seek: int
    skip: int
    lines: list[bytes]


def coalesced(steps: Iterator[Step]) -> Iterator[Step]:
    """Join small steps of one base up to 256 KiB; what was held is yielded before a :class:`CorruptShardError`."""
    held: list[bytes] = []
    base = size = 0
    failure: CorruptShardError | None = None
    try:
        for step in steps:
            if held and (step.base != base or size >= BLOCK):
                yield Step(base, b"".join(held))
                held, size = [], 0
            base = step.base
            held.append(step.data)
            size += len(step.data)
    except CorruptShardError as error:
        failure = error
    if held:
        yield Step(base, b"".join(held))
    if failure is not None:
        raise failure


class LineCutter:
    """Cuts steps into runs of lines; made for one pass that begins at ``base``. ``blanks`` keeps blank lines."""

    def __init__(self, base: int, shard: str, *, blanks: bool = False) -> None:
        self._shard = shard
        self._blanks = blanks
        self._base = base
        self._count = 0  # pieces since the base that count, the open one left out
        self._first = base == 0  # the next line is the shard's first, which may begin with a BOM
        self._tail: list[bytes] = []  # the open line
        self._held = 0
        self._home: tuple[int, int] | None = None  # the open line's cursor, where it began before the base
        self._solid = False  # the open line's part since the base counts

    def feed(self, step: Step) -> Iterator[Run]:
        """Yield the lines that ``step`` completes."""
        if step.base != self._base:
            self._rebase(step.base)
        data = step.data
        if self._home is not None:
            part, newline, data = data.partition(b"\n")
            self._solid = self._solid or self._counts(part)
            self._keep(part)
            if not newline:
                return
            yield from self._straddler()
        lines = cut_lines(data)
        if len(lines) > 1 and self._tail:
            lines[0] = b"".join([*self._tail, lines[0]])
            self._tail, self._held = [], 0
        self._keep(lines.pop())
        if lines:
            yield from self._run(lines)

    def finish(self) -> Iterator[Run]:
        """Yield the last line, where no newline ended it; a byte order mark alone is none."""
        if self._first and b"".join(self._tail) == BOM:
            return
        if self._home is not None:
            yield from self._straddler()
        elif self._tail:
            yield from self._run([b"".join(self._tail)])

    def _rebase(self, base: int) -> None:
        if self._tail and self._home is None:
            self._home = (self._base, self._count)
        self._base, self._count, self._solid = base, 0, False

    def _straddler(self) -> Iterator[Run]:
        assert self._home is not None
        line = self._without_bom(b"".join(self._tail))
        if self._counts(line):
            yield Run(*self._home, [line])
        self._count += self._solid
        self._tail, self._held, self._home = [], 0, None

    def _run(self, lines: list[bytes]) -> Iterator[Run]:
        lines[0] = self._without_bom(lines[0])
        found = lines if self._blanks else [line for line in lines if line and not line.isspace()]
        if found:
            yield Run(self._base, self._count, found)
            self._count += len(found)

    def _counts(self, line: bytes) -> bool:
        return self._blanks or not is_blank(line)

    def _without_bom(self, line: bytes) -> bytes:
        first, self._first = self._first, False
        return line[len(BOM) :] if first and line.startswith(BOM) else line

    def _keep(self, data: bytes) -> None:
        if data:
            self._tail.append(data)
            self._held += len(data)
            if self._held > LINE_LIMIT:
                where = f"line after record {self._count} from byte {self._base}"
                raise CorruptShardError(self._shard, where, line_too_long(), "this is no shard of lines")
