"""A loopback Hub, empty for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.servers.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def _served() -> Iterator[Hub]:
    served = Hub()
    yield served
    served.close()


@pytest.fixture
def hub(_served: Hub) -> Hub:
    _served.reset()
    return _served
