"""PostgresCoordinator keeps the guarantees of a Coordinator on a real server."""

from __future__ import annotations

import pytest

from deltalog.catalog.postgresql import PostgresCoordinator
from deltalog.testing.coordinator_tests import CoordinatorTests
from tests.support.postgresql import Postgres


class TestPostgresCoordinator(CoordinatorTests):
    @pytest.fixture
    def coordinator(self, postgresql: Postgres) -> PostgresCoordinator:
        return postgresql.coordinator()

    @pytest.fixture
    def another(self, coordinator: PostgresCoordinator) -> PostgresCoordinator:
        return PostgresCoordinator(coordinator.url)
