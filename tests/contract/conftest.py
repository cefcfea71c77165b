from __future__ import annotations

from pathlib import Path

import pytest

from deltalog import DeltaTable
from deltalog.storage import LogStore
from deltalog.storage.fs import LocalStore
from tests.support.core import ICT, SCHEMA, environment, memory


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """A location without a table."""
    return LocalStore(tmp_path / "table") if request.param == "local" else memory()


@pytest.fixture(params=["local", "memory", "s3"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    """Like ``store``, but runs on an S3 server too, to test behaviour that is specific to S3."""
    if request.param == "s3":
        made: LogStore = request.getfixturevalue("ministack").store()
        return made
    return LocalStore(tmp_path / "table") if request.param == "local" else memory()


@pytest.fixture
def table(store: LogStore) -> DeltaTable:
    """A table with the columns ``id`` and ``name``, at version 0."""
    return DeltaTable.create(store, SCHEMA, properties=ICT, environment=environment())


@pytest.fixture
def blobs(store: LogStore) -> DeltaTable:
    """A table of blobs, at version 0."""
    return DeltaTable.create_for_blobs(store, properties=ICT, environment=environment())
