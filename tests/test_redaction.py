"""What signs a URL is shown to nobody, whatever its name."""

from __future__ import annotations

import pytest

from streamfeed import Source, StreamConfig
from streamfeed.redaction import redact
from streamfeed.storage.files import ShardFile
from streamfeed.train.config import DataConfig, SourceConfig

SIGNED = "https://me:hush@h/x.jsonl?n=1&md5=hush"


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
        ("https://h/x?Policy=p&Key-Pair-Id=k&Signature=s", "https://h/x?Policy=***&Key-Pair-Id=k&Signature=***"),
        ("simplecache::https://me:secret@host/x?sig=abc", "simplecache::https://***@host/x?sig=***"),
        ("https://h/x?md5=abc&expires=1700000000", "https://h/x?md5=***&expires=1700000000"),
        ("https://h/x?v=2;Sign=abc&auth_key=abc&jwt=abc", "https://h/x?v=2;Sign=***&auth_key=***&jwt=***"),
        ("https://h/x?abcdef&download", "https://h/x?***&download"),
        ("HTTPS://h/x?%73ig=abc", "HTTPS://h/x?%73ig=***"),
        ("zip://a?b=c.jsonl::https://h/a.zip?hmac=abc", "zip://a?b=c.jsonl::https://h/a.zip?hmac=***"),
        ("filecache::https://h/x?hmac=abc::more", "filecache::https://h/x?hmac=***::more"),
        ("s3://bucket/what?day=mon.jsonl", "s3://bucket/what?day=mon.jsonl"),
        ("abfs://box@account/x?sv=1&sig=abc", "abfs://***@account/x?sv=1&sig=***"),
        ("https://h/x?sig=***&n=1", "https://h/x?sig=***&n=1"),
        ("zip://a.jsonl::ftp://me:secret@host/x.zip", "zip://a.jsonl::ftp://***@host/x.zip"),
    ],
)
def test_user_names_and_signatures_are_hidden_and_the_rest_is_kept(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert ShardFile(url, 0).shard == shown


@pytest.mark.parametrize("uri", [SIGNED, [SIGNED, "data/y.jsonl"]])
def test_no_config_shows_what_signs_its_urls(uri: str | list[str]) -> None:
    source = Source(uri, storage_options={"secret": "hush"})
    assert "https://***@h/x.jsonl?n=1&md5=***" in repr(source)
    data = DataConfig(uri=uri, storage_options={"secret": "hush"}, sources=[SourceConfig(uri)])
    assert "hush" not in f"{source!r} {StreamConfig([source], tokenizer='t')!r} {data!r}"


def test_an_error_of_a_source_names_it_without_what_signs_it() -> None:
    with pytest.raises(ValueError, match=r"https://\*\*\*@h/x\.jsonl\?n=1&md5=\*\*\*: weight") as wrong:
        Source(SIGNED, weight=-1)
    assert "hush" not in str(wrong.value)
