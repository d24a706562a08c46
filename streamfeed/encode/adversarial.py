"""The adversarial set: texts on which tokenizer engines have gone wrong, or could.

It is made from constants and from the tokenizer's own vocabulary, so that it is the same wherever it runs. Change
:data:`SET_VERSION` with the set: verdicts are cached by it.
"""

# ruff: noqa: RUF001 - look-alikes are what this file is about

from __future__ import annotations

import json
import unicodedata
from itertools import product
from typing import Any

import numpy as np

from streamfeed.encode.code_points import EMOJI, NEW_CODE_POINTS, SPACES, mixed_scripts, scripts, sweep

__all__ = ["SET_VERSION", "documents"]

SET_VERSION = 2

_LONG_DOCUMENTS = (20_000, 33_000, 66_000, 131_072, 262_145, 600_000, 1_100_000, 2_000_000)  # UTF-8 bytes, about
_MAX_VOCABULARY = 40_000


def documents(spec_json: str) -> list[str]:
    """Return the whole set for the tokenizer with this JSON: some thousand texts, about 10 MB of UTF-8."""
    parsed = json.loads(spec_json)
    controls = [str(token["content"]) for token in parsed.get("added_tokens") or []]
    vocabulary = _vocabulary(parsed.get("model", {}).get("vocab") or {})
    short = ["", *_spaces(), *_runs(), *_marks(), *_words(), *EMOJI, *_controls(controls), *mixed_scripts()]
    short.append("".join(f"{c} {c}a{c}1" for c in NEW_CODE_POINTS))
    return [*short, *_vocabulary_lines(vocabulary), *sweep(), *_long(short, vocabulary)]


def _spaces() -> list[str]:
    pairs = [f"{a}{b}" for a, b in product(SPACES, SPACES)]
    around = [f"{c}a{c}{c}b {c}c{c} d{c}1{c}.{c}\n{c}" for c in SPACES]
    return [*around, "x".join(pairs), " 1".join(pairs), "!".join(pairs), "'s".join(pairs), *SPACES]


def _runs() -> list[str]:
    lengths = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257)
    atoms = [*" \n\t\xa009aAé-=.'_中ا\u0301\U0001f600", "\r\n", "!?"]
    documents = ["".join(f"x{atom * n}y{atom * n} " for n in lengths) for atom in atoms]
    documents += [atom * n for atom in atoms for n in (1023, 4097)]
    documents += [" \n" * 500, "\n \n" * 300, "\t " * 400, "ab" * 3000, "1,2" * 900, "\r\r\n\n" * 200]
    return documents


def _marks() -> list[str]:
    texts = [
        "e\u0301 é \u0065\u0301\u0323 ệ n\u0303o Å \u212b A\u030a",
        "\uac00 \u1100\u1161\u11a8 각 ﬁ ﬀ ① ² ½ Ⅷ ㎏ ﷺ ｆｕｌｌ ｶﾞ",
        "ſtraße STRASSE İstanbul ıI iİ ΑΣ ας ǅ Ǆ ǆ ŉ ß ẞ K \u212a Ω \u2126 µ μ",
        "a" + "\u0300\u0301\u0323\u0489" * 60 + "b",
        "क्षि த்தி ก็ กำ שָׁלוֹם عَرَبِيّ हिन्दी বাংলা ಕನ್ನಡ မြန်မာ ខ្មែរ བོད་",
        "x\ufe00y\ufe0fz\U000e0100 \u034f\u17b4\u180b a\u200db\u200cc \u2066rtl\u2069 \ufff9\ufffa\ufffb\ufffc\ufffd",
        (
            "\ue000\uf8ff\U000f0000\U0010fffd \ufdd0\ufdef\ufffe\uffff\U0001fffe\U0010ffff \u0378\u0379\U000e0080 "
            "\x00\x01\x1b[0m\x7f\x80\x9f"
        ),
    ]
    return [unicodedata.normalize(form, text) for text in texts for form in ("NFC", "NFD", "NFKC", "NFKD")] + texts


def _words() -> list[str]:
    suffixes = [
        "",
        " s",
        *["s", "t", "re", "ve", "m", "ll", "d", "S", "T", "RE", "Ve", "M", "LL", "D", "ſ", "x", "st", "1"],
    ]
    quotes = ("'", "\u2019", "''", "`", "\u02bc")
    cases = [
        "word",
        "Word",
        "WORD",
        "wordWord",
        "WORDword",
        "wORD",
        "Ünï",
        "ДОМдом",
        "дом",
        "word中",
        "123word",
        "word123",
        "_w_",
        "w.w",
        "ǅungla",
    ]
    numbers = (
        "1 12 123 1234 12345 123456789 0.5 1,000,000 1e-10 0xFF ٣٤٥ १२३ １２３ ²³ ½ Ⅻ 12a 1_000 v1.2.3 3.14.15 "
        "-1 +1 1st $1 1% 2024-01-31T23:59:59Z"
    )
    code = (
        "def f(x: int) -> str:\n    return f'{x!r:>{10}}'  # don't\n\n\nclass A(B):\r\n\tpass\r\n",
        "#include <a.h>\nint main(){for(;;){a[i++]+=*p->q;}/*x*/}//y\n\n\t\t}\n   }\n",
        'const s=`${a?.b??"c"}`;\n<div class="a">&nbsp;</div>\n{"k":[1,-2.5e3,null],"é":"\\u00e9"}\n',
        "$ ls -la | grep 'x' >> ~/f && echo $?\n https://example.com/a_b/c?d=e&f=%20#g user.name+tag@example.co.uk",
        "C:\\Windows\\n\\t ../../x.py ::1 192.168.0.1",
        "...!!!??? --- === *** ### ((())) [[]] {{}} <<>> \"\"\" ''' ,,, ;;; :: -> => != <= |> \\\\ // /* */",
        "¿¡ «» “” ‘’ — – … 、。！？",
    )
    contractions = " ".join(f"{w}{q}{s}" for w in cases[:4] for q in quotes for s in suffixes)
    pairs = " ".join(f"{a}{b} {a}-{b} {a}'{b} {a}\n{b}" for a, b in product(cases, cases))
    separators = ("", " ", "\n", ".", "  ", "\r\n", ",")
    return [
        contractions,
        contractions.upper(),
        pairs,
        *cases,
        *(sep.join(numbers.split()) for sep in separators),
        *code,
        "\r\n".join(code),
    ]


def _controls(controls: list[str]) -> list[str]:
    """Return every control string in place of text: alone, inside words, adjacent, cut short, with spaces."""
    shown = controls[:64] + controls[64 :: max(1, len(controls) // 64)]
    documents = [
        f"{t}|a{t}b|a {t} b|{t}{t}|\n{t}\n|{t[:-1]}|{t[1:]}|{t[:-1]} {t[-1:]}|{t.upper()}|{t.lower()}|1{t}1|  {t}  "
        f"|é{t}中|{t}s {t}'s"
        for t in shown
    ]
    return [
        *documents,
        *shown,
        "".join(shown),
        " ".join(shown),
        "".join(controls[:2000]),
        "<|unknown|><s></s>[CLS]<0x41><pad>▁▁ ▁a Ġa Ċ",
    ]


def _vocabulary(vocab: dict[str, int] | list[Any]) -> list[str]:
    """Return what the entries of the vocabulary stand for, as text, in order of their ids and thinned where many."""
    tokens = sorted(vocab, key=lambda token: vocab[token]) if isinstance(vocab, dict) else [entry[0] for entry in vocab]
    alphabet = _byte_alphabet()
    kept = tokens[:: 1 + len(tokens) // _MAX_VOCABULARY]
    texts = (
        bytes(alphabet[c] for c in t).decode("utf-8", "ignore") if all(c in alphabet for c in t) else t for t in kept
    )
    return [text.replace("▁", " ") for text in texts if text]


def _byte_alphabet() -> dict[str, int]:
    """Return the printable stand-in of every byte in byte-level vocabularies."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in set(printable))
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


def _vocabulary_lines(vocabulary: list[str], size: int = 512) -> list[str]:
    """Join entries with and without something between: merges across the seams are where caches can be wrong."""
    chunks = [vocabulary[at : at + size] for at in range(0, len(vocabulary), size)]
    return [
        separator.join(chunk) for n, chunk in enumerate(chunks) for separator in (("", " ") if n & 1 else ("\n", "'"))
    ]


def _long(short: list[str], vocabulary: list[str]) -> list[str]:
    """Return single long documents of mixed text: engines cut those to work on the parts in parallel."""
    words = [
        *(vocabulary or ["word"])[:20_000],
        " the",
        " of",
        "ing",
        ". ",
        "\n",
        "\n\n",
        "    ",
        " 1234567",
        "'s",
        "\r\n",
    ] * 2
    words += (
        [letters[:9] for letters in scripts().values()] + list(EMOJI) + [text for text in short if 0 < len(text) < 40]
    )
    rows = [text for text in short if 300 < len(text) < 3000]
    bits = np.random.Philox(key=SET_VERSION)
    return [_document(target, words, rows, bits) for target in _LONG_DOCUMENTS]


def _document(target: int, words: list[str], rows: list[str], bits: np.random.Philox) -> str:
    """Join words, each fourth one after a space and now and then a whole other case, up to ``target`` bytes."""
    pieces: list[str] = []
    size = 0
    while size < target:
        for draw in bits.random_raw(512).tolist():
            choices = words if draw & 0x3FF else rows
            piece = choices[(draw >> 16) % len(choices)]
            pieces.append(piece if draw & 0xC00 else " " + piece)
            size += len(pieces[-1].encode())
            if size >= target:
                break
    return "".join(pieces)
