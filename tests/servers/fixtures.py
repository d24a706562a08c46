"""Fixtures of the loopback servers; ``tests/conftest.py`` gives them to the whole suite."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers.hub import Hub
    from tests.servers.s3_proxy import S3Proxy
    from tests.servers.seaweed import Bucket, Seaweed
    from tests.servers.web import WebServer


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """A real S3 server, started when the first test asks for it (some seconds)."""
    import botocore.session

    from tests.servers.seaweed import Seaweed

    # Most of what an S3 client costs is to parse the description of the API, which does not change meanwhile.
    with pytest.MonkeyPatch.context() as patch, Seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        patch.setattr("botocore.session.create_loader", cache(botocore.session.create_loader))
        yield server


@pytest.fixture
def bucket(seaweed: Seaweed, request: pytest.FixtureRequest) -> Bucket:
    """An empty bucket on the S3 server."""
    return seaweed.bucket(request.node.name)


@pytest.fixture
def s3_proxy(seaweed: Seaweed) -> Iterator[S3Proxy]:
    """A server in front of the S3 server, whose answers go wrong as scripted."""
    from tests.servers.s3_proxy import S3Proxy

    proxy = S3Proxy(seaweed)
    yield proxy
    proxy.close()


@pytest.fixture
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """An HTTP server of an empty folder, ``web.folder``."""
    from tests.servers.web import WebServer

    server = WebServer(tmp_path_factory.mktemp("web"))
    yield server
    server.close()


@pytest.fixture(scope="session")
def _served() -> Iterator[Hub]:
    from tests.servers.hub import Hub

    served = Hub()
    yield served
    served.close()


@pytest.fixture
def hub(_served: Hub) -> Hub:
    """A Hub on loopback without a repository."""
    _served.reset()
    return _served
