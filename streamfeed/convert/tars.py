"""A tar's samples as records, and records as a tar's samples.

A sample is the record of its ``.json`` member, with its ``.txt`` as the text field, every other member as bytes under
its extension, and its name as ``__key__``. The other way, bytes become members, the text ``.txt``, and all else
``.json``. So a record that went through a tar is the same again, but for its key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from streamfeed.formats.jsontext import object_in_json
from streamfeed.formats.protocol import Bad
from streamfeed.formats.samples import MEMBER_LIMIT, doubled, place_of, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from streamfeed.convert.rows import Sample
    from streamfeed.formats.members import Member
    from streamfeed.formats.protocol import Value
    from streamfeed.formats.samples import Sample as Found

__all__ = ["KEY", "Keys", "RawSamples", "members_of", "record_of"]

KEY = "__key__"
_TEXT, _JSON = "txt", "json"
_KEY = re.compile(r"(?:[^./\\\0\n]+/)*[^./\\\0\n]+")
"""A key that stays what it is: no dot, since the extension begins at the first, and no way out of a folder."""

_EXTENSION = re.compile(r"[^/\\\0\nA-Z_.][^/\\\0\nA-Z]*")
_UNSAFE = re.compile(r"[.\\\0\n]|//+|^/|/$")


class RawSamples:
    """Reads all members of samples, undecoded: as a tuple of the key and the members' data by extension."""

    class _All(frozenset[str]):
        def __contains__(self, name: object) -> bool:
            return True

    extensions: frozenset[str] = _All()

    def whole(self, sample: Found) -> bool:  # noqa: ARG002
        """Return False: nobody knows how many members the last sample of an archive that is cut off had."""
        return False

    def stored(self, sample: Found) -> int:
        """Return the bytes of the sample's members."""
        return sum(member.size for member in sample.members.values())

    def value(self, sample: Found, data_of: Callable[[Member], bytes]) -> Value:
        """Return the sample as :class:`~streamfeed.convert.rows.Sample`, or what is bad about it."""
        from streamfeed.convert.rows import Sample

        where = place_of(sample)
        bad = doubled(sample, where)
        large = next((member for member in sample.members.values() if member.size > MEMBER_LIMIT), None)
        if bad is not None or large is None:
            found: Any = bad or Sample(sample.key, {name: data_of(one) for name, one in sample.members.items()})
            return found  # type: ignore[no-any-return]
        return Bad(where, f"member {large.name!r} has {large.size:,} bytes, at most {MEMBER_LIMIT:,} are read")


def record_of(sample: Sample, text: str) -> dict[str, object] | Bad:
    """Return the record that a sample is; its text under the name ``text``."""
    record: dict[str, object] = {KEY: sample.key}
    rest: dict[str, object] = {}
    for name, data in sample.members.items():
        if name == _JSON:
            found = object_in_json(data, "", "the member '.json'")
            if isinstance(found, Bad):
                return found
            record.update(found if isinstance(found, dict) else {_JSON: found})
        elif name == _TEXT:
            try:
                rest[text] = data.decode()
            except UnicodeDecodeError as error:
                return Bad("", f"the member '.txt' is not valid UTF-8: {error.reason} at its byte {error.start}")
        else:
            rest[name] = data
    for name, value in rest.items():
        if record.get(name, value) == value or _said(record[name]) == value:
            record.setdefault(name, value)
        elif name == text and _TEXT not in record:
            record[_TEXT] = value
        else:
            return Bad("", f"the member '.{name}' and the field {name!r} of '.json' are not the same", "rename one")
    return record


def _said(value: object) -> bytes:
    """Return how a member says a field of ``.json``."""
    return value.encode(errors="surrogatepass") if isinstance(value, str) else orjson.dumps(value)


def members_of(record: Mapping[str, object], text: str, said: Callable[[object], bytes]) -> dict[str, bytes]:
    """Return the members for a record; ``said`` makes JSON of a value."""
    members: dict[str, bytes] = {}
    rest: dict[str, object] = {}
    for name, value in record.items():
        if isinstance(value, bytes) and name not in {_TEXT, _JSON} and _EXTENSION.fullmatch(name):
            members[name] = value
        elif name == text and isinstance(value, str) and _TEXT not in record:
            members[_TEXT] = value.encode()
        elif name != KEY:
            rest[name] = value
    if rest or not members:
        members[_JSON] = said(rest)
    return members


class Keys:
    """The keys of one shard's samples: each once, none that leads out of the folder that the shard is unpacked in."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def key(self, wanted: object, number: int) -> str:
        """Return the key of record ``number``: what it wants to be called, made safe, or its number.

        A key that another record has is followed by the number. No two are the same without regard to letters' case,
        since a disk may have none.
        """
        key = f"{number:09}"
        if isinstance(wanted, str) and wanted:
            key = wanted if _is_safe(wanted) else _UNSAFE.sub(_escaped, wanted)
        if not _is_safe(key):
            key = f"{number:09}"
        if key.lower() in self._given:
            key = f"{key}-{number:09}"
        self._given.add(key.lower())
        return key


def _is_safe(key: str) -> bool:
    if not _KEY.fullmatch(key) or len(key.encode(errors="surrogateescape")) > 200:
        return False
    return sample_of(f"{key}.{_JSON}") == (key, _JSON)


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{ord(char):02X}" for char in found[0])
