"""S3 through s3fs: conditional ranged reads, watched as they arrive, and flat listings page by page."""

from __future__ import annotations

import asyncio
from typing import Any

from streamfeed.storage.client import Entry, Limits, Progress, run_async
from streamfeed.storage.faults import ChangedError, Kind, classify

__all__ = ["S3Port"]

_STEP = 1 << 18


class S3Port:
    """Asks by s3fs' own client; a version is the object's ETag."""

    conditional = True

    def __init__(self, fs: Any) -> None:  # noqa: ANN401
        self._fs = fs

    def read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:
        """Read a range, if the object is still of the version known."""
        run_async(self._fs, self._read(path, start, stop, known, into, limits), limits.whole(stop - start) * 4)

    async def _read(self, path: str, start: int, stop: int, known: Entry, into: Progress, limits: Limits) -> None:
        condition = {"IfMatch": known.version} if known.version else {}
        async with asyncio.timeout(limits.stall_s) as limit:
            where = f"bytes={start}-{stop - 1}"
            answer = await self._call("get_object", **self._object(path), Range=where, **condition)
            etag = answer.get("ETag", "")
            if known.version and etag and etag != known.version:  # a server that knows no conditions
                answer["Body"].close()
                raise ChangedError
            async with answer["Body"] as body:
                while into.size < stop - start and (data := await body.read(_STEP)):
                    into.add(data)
                    limit.reschedule(asyncio.get_running_loop().time() + limits.stall_s)

    async def _call(self, method: str, **arguments: Any) -> Any:  # noqa: ANN401
        return await self._fs._call_s3(method, **arguments)  # noqa: SLF001 - all of s3fs goes through it, and it tries once

    def _object(self, path: str) -> dict[str, str]:
        bucket, key, version = self._fs.split_path(path)
        return {"Bucket": bucket, "Key": key, **({"VersionId": version} if version else {})}

    def info(self, path: str, limits: Limits) -> Entry:
        """Return the object at ``path``, or the folder that keys make of it."""
        return run_async(self._fs, self._info(path), limits.stall_s)

    async def _info(self, path: str) -> Entry:
        where = self._object(path)
        key = where["Key"]
        missing: Exception | None = None
        if key and not key.endswith("/"):
            try:
                found = await self._call("head_object", **where)
            except Exception as error:
                if classify(error).kind is not Kind.MISSING:
                    raise
                missing = error
            else:
                return Entry(path, int(found["ContentLength"]), str(found.get("ETag", "")))
        prefix = key.rstrip("/") + "/" if key else ""
        page = await self._call("list_objects_v2", Bucket=where["Bucket"], Prefix=prefix, MaxKeys=1)
        if page.get("Contents") or not key:
            return Entry(path, 0, "", folder=True)
        raise missing or FileNotFoundError

    def tree(self, path: str, stem: str, token: str, limits: Limits) -> tuple[list[Entry], str]:
        """Return up to a thousand of the objects below ``path``, and the token of the next thousand."""
        bucket, key, _ = self._fs.split_path(path)
        prefix = (key.rstrip("/") + "/" if key else "") + stem
        after = {"ContinuationToken": token} if token else {}
        page = run_async(self._fs, self._call("list_objects_v2", Bucket=bucket, Prefix=prefix, **after), limits.stall_s)
        found = [
            Entry(f"{bucket}/{one['Key']}", int(one["Size"]), str(one.get("ETag", "")))
            for one in page.get("Contents", ())
            if not one["Key"].endswith("/")  # what some tools write to show a folder
        ]
        return found, str(page["NextContinuationToken"]) if page.get("IsTruncated") else ""

    def folder(self, path: str, limits: Limits) -> list[Entry]:
        """Not needed: the tree is always known."""
        raise NotImplementedError
