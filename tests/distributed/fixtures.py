"""The pool of ranks as a fixture; ``tests/conftest.py`` gives it to the whole suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.distributed.pool import RankPool

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def pool_of_ranks() -> Iterator[RankPool]:
    """One process that has imported what ranks need, and forks them."""
    with RankPool() as pool:
        yield pool


@pytest.fixture
def rank_pool(pool_of_ranks: RankPool) -> Iterator[RankPool]:
    """The pool, which is cleared of what a failed test has left."""
    yield pool_of_ranks
    pool_of_ranks.end_jobs()
