"""Records of several fields out of what only `datasets` can read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from streamfeed.errors import FieldError
from streamfeed.formats.detect import make_format
from streamfeed.formats.hub_shards import shards_by_datasets
from streamfeed.formats.protocol import WHOLE, Bad, Cursor
from streamfeed.formats.shape import Field, Shape
from streamfeed.storage.files import ShardFile
from streamfeed.storage.store import Store
from tests.reading import OptionsAlone, values_in

if TYPE_CHECKING:
    from tests.servers.hub import Hub

README = "---\nconfigs:\n- config_name: default\n  data_files: '*.json'\n  field: rows\n---\n"
ROWS: list[dict[str, Any]] = [
    {
        "text": None if i == 3 else f"text {i}",
        "meta": {"stars": i % 5},
        "messages": [
            {"role": "user", "content": "é"},
            {"role": "assistant", "tool_calls": [{"name": "f"}]} if i % 2 else {"role": "assistant", "content": "b"},
        ],
    }
    for i in range(100)
]
SHAPE = Shape(
    fields=(
        Field("text", None, "text"),
        Field("label", "meta.stars", "label"),
        Field("messages", "messages", "messages"),
    ),
    classes=4,
)


def test_examples_are_records_and_every_cursor_is_exact(hub: Hub) -> None:
    hub.repo("org/odd", {"README.md": README, "0.json": json.dumps({"rows": ROWS})})
    listing, kind = shards_by_datasets(Store().list(["hf://datasets/org/odd"]).datasets[0], {})
    file = ShardFile(listing.urls[0], listing.sizes[0], edge=OptionsAlone())
    found = values_in(make_format(kind, SHAPE).read(file, WHOLE, Cursor()))
    for i, (value, row) in enumerate(zip(found, ROWS, strict=True)):
        if i % 5 == 4:
            cause = "field 'meta.stars' is 4, and labels are numbers from 0 to 3"
            assert value == Bad(f"example {i}", cause)
        elif row["text"] is None:
            assert value is None
        else:
            wanted = {"text": row["text"], "label": i % 5, "messages": row["messages"]}
            assert orjson.loads(str(value)) == wanted
    for skip in (1, 63, 65, 99):
        assert values_in(make_format(kind, SHAPE).read(file, WHOLE, Cursor(0, skip))) == found[skip:]
    with pytest.raises(FieldError, match="no field 'x'; fields present: text, meta, messages"):
        values_in(make_format(kind, Shape(fields=(Field("x", "x", "any"),))).read(file, WHOLE, Cursor()))
