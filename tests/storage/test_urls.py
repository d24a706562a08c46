"""Secrets never reach a message."""

from __future__ import annotations

import pytest

from streamfeed.storage.files import ShardFile
from streamfeed.storage.urls import redact


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("/data/a@b/x?token=1.jsonl", "/data/a@b/x?token=1.jsonl"),
        ("s3://bucket/key@2.jsonl", "s3://bucket/key@2.jsonl"),
        ("https://me:secret@host/x", "https://***@host/x"),
        ("https://me:p@ss@host/x", "https://***@host/x"),
        (
            "https://h/x?X-Amz-Signature=abc&n=1&X-Amz-Credential=c",
            "https://h/x?X-Amz-Signature=***&n=1&X-Amz-Credential=***",
        ),
        ("https://h/x?sv=1&sig=abc#part", "https://h/x?sv=1&sig=***#part"),
        ("https://h/x?design=1&token=t", "https://h/x?design=1&token=***"),
    ],
)
def test_user_names_and_signatures_are_hidden_and_the_rest_is_kept(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert ShardFile(url, 0).shard == shown
