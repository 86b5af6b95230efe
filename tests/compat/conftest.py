"""A real server for programs that were made for Redis and Disque."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator

import pytest

from lab import RealServer
from raw_resp import Wire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One server for a whole file."""
    made = RealServer(tmp_path_factory.mktemp("node")).start()
    yield made
    with Wire(made.port) as wire:
        assert wire("DEBUG", "CHECK") == b"OK"
    made.end()


@pytest.fixture(scope="module", autouse=True)
def required(request: pytest.FixtureRequest) -> None:
    """Skip a file whose program or package is not there; under CI it must be."""
    name = request.module.NEEDS
    there = shutil.which(name) or importlib.util.find_spec(name.replace("-", "_"))
    if not there and os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed")
    if not there:
        pytest.skip(f"{name} is not installed")
