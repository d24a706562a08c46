"""Text over the whole of Unicode, for the adversarial set: by range, so that it is the same under every Python."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from functools import cache

__all__ = ["EMOJI", "NEW_CODE_POINTS", "SPACES", "mixed_scripts", "scripts", "sweep"]

# Every code point with the White_Space property, those that look like one (zero width, blank Hangul and Braille), and
# the control characters that regex dialects disagree about (\x1c to \x1f are space to Python, not to \s of Oniguruma).
SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029"
    "\u202f\u205f\u3000"
    "\x00\x1c\x1d\x1e\x1f\x7f\u180e\u200b\u200c\u200d\u2060\ufeff\u115f\u1160\u3164\uffa0\u2800\u00ad\u061c\u200e\u202e\u2066"
)

# Blocks and single code points that Unicode 14 to 17 added: engines carry tables of different age.
NEW_CODE_POINTS = tuple(
    chr(point)
    for first, last in (
        (0x0870, 0x088E), (0x0CF3, 0x0CF3), (0x0ECE, 0x0ECE), (0x1C89, 0x1C8A), (0x2FFC, 0x2FFF), (0xA7CB, 0xA7DC),
        (0xA7F1, 0xA7F4), (0x10570, 0x105BC), (0x105C0, 0x105F3), (0x10940, 0x10959), (0x10D40, 0x10D8F),
        (0x10EC2, 0x10EC7), (0x11380, 0x113E2), (0x116D0, 0x116E3), (0x11B60, 0x11B67), (0x11BC0, 0x11BF9),
        (0x11DB0, 0x11DE9), (0x11F00, 0x11F59), (0x13460, 0x13480), (0x16100, 0x16139), (0x16D40, 0x16D79),
        (0x16EA0, 0x16ED3), (0x18CFF, 0x18CFF), (0x18D80, 0x18DF2), (0x1CC00, 0x1CC40), (0x1D2C0, 0x1D2D3),
        (0x1E4D0, 0x1E4F9), (0x1E5D0, 0x1E5FF), (0x1E6C0, 0x1E6F5), (0x1FA75, 0x1FA8F), (0x1FAC6, 0x1FAEA),
        (0x2B73A, 0x2B73F), (0x2EBF0, 0x2EBF4), (0x31350, 0x31354), (0x323B0, 0x323B4),
    )
    for point in range(first, last + 1)
)  # fmt: skip

EMOJI = (
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f3f3\ufe0f\u200d\U0001f308",
    "\U0001f44d\U0001f3fb\U0001f44d\U0001f3ff",
    "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7\U0001f1fa",
    "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
    "1\ufe0f\u20e3#\ufe0f\u20e3",
    "\u2764\ufe0f\u2764\ufe0e\u2764",
    "\U0001f9d1\U0001f3fd\u200d\U0001f4bb",
    "\U0001f600\U0001f600 \U0001f600a\U0001f6001",
)

_DETAILED = ((0x80, 0x3400), (0xA000, 0xAC00), (0xF900, 0x12400), (0x13000, 0x14680), (0x16100, 0x17000),
             (0x1AFF0, 0x1FC00), (0xE0000, 0xE0200))  # fmt: skip
_BULK = ((0x3400, 0xA000), (0xAC00, 0xD800), (0xE000, 0xF900), (0x12400, 0x13000), (0x14680, 0x16100),
         (0x17000, 0x1AFF0), (0x1FC00, 0x20000), (0x20000, 0x33480))  # fmt: skip
_SPARSE = ((0x33480, 0xE0000), (0xE0200, 0x110000))  # unassigned and private: every 17th, and the ends of the planes


def sweep(chunk: int = 1024) -> list[str]:
    """Return every code point of the assigned ranges beside letters, digits, spaces, quotes and a combining mark.

    Ideographs, Hangul syllables and private use come with a letter only, the empty planes thinned out. A document
    holds ``chunk`` code points.
    """
    detailed = [f"  {c}{c}a{c} {c}1's{c}'s\u0301" for c in _characters(_DETAILED)]
    bulk = [f"{c}s" if i & 1 else f" {c}" for i, c in enumerate(_characters(_BULK))]
    sparse = [f"{c} s" for c in _characters(_SPARSE, 17)]
    sparse += [f"a{chr(p + d)} " for p in range(0x40000, 0x110000, 0x10000) for d in (-2, -1, 0, 1)]
    ascii_pairs = [f"{chr(a)}{chr(b)}" for a in range(128) for b in range(128)]
    return [
        "".join(pieces[at : at + chunk])
        for pieces in (ascii_pairs, detailed, bulk, sparse)
        for at in range(0, len(pieces), chunk)
    ]


def _characters(ranges: tuple[tuple[int, int], ...], step: int = 1) -> list[str]:
    points = (point for first, end in ranges for point in range(first, end, step))
    return [chr(point) for point in points if not 0xD800 <= point < 0xE000]


@cache
def scripts() -> dict[str, str]:
    """Return up to 48 letters, marks and digits of every script that this Python knows, by script."""
    found: dict[str, list[str]] = defaultdict(list)
    for c in _characters(((0x41, 0x3400), (0x4E00, 0x4E40), (0xA000, 0xAC40), (0xF900, 0x17000), (0x18B00, 0x1F000))):
        if unicodedata.category(c)[0] in "LMN":
            letters = found[unicodedata.name(c, "?").split(" ")[0].split("-")[0]]
            if len(letters) < 48:
                letters.append(c)
    return {script: "".join(letters) for script, letters in found.items()}


def mixed_scripts() -> list[str]:
    """Return a few words in every script: alone, with punctuation, joined to Latin, upper and lower case."""
    documents = []
    for letters in scripts().values():
        words = [letters[at : at + size] for at, size in ((0, 1), (0, 2), (1, 3), (3, 5), (5, 8), (8, 13), (20, 21))]
        line = " ".join(word for word in words if word)
        documents.append(f"{line}, {line}.\n{letters}x{letters} {letters.upper()}{letters.lower()}9 '{letters}'s")
    return documents
