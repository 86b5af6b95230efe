"""A database with an outbox, and a node."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from postgres_lab import PROGRAMS, Postgres

from lab import RealServer

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("sqlalchemy") is None else []


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Postgres]:
    if not PROGRAMS or importlib.util.find_spec("psycopg") is None:
        pytest.skip("PostgreSQL or psycopg is not installed")
    with TemporaryDirectory(prefix="tuque-pg-") as place:  # its user must be able to get there
        made = Postgres(Path(place))
        yield made
        made.kill()


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A database with the tables of outbox_shop.py, empty."""
    import outbox_shop as shop
    from sqlalchemy import create_engine

    if request.param == "sqlite":
        made = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    else:
        made = create_engine(request.getfixturevalue("_postgres").url)
    shop.metadata.drop_all(made)
    shop.metadata.create_all(made)
    yield made
    made.dispose()


@pytest.fixture
def own_node(node: RealServer) -> Iterator[RealServer]:
    """The node of the run, empty after the test."""
    yield node
    with node.wire() as wire:
        assert wire("DEBUG", "FLUSHALL") == b"OK"
