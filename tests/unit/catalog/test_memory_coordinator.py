"""MemoryCoordinator, which the tests use, fulfils the guarantees of a Coordinator."""

from __future__ import annotations

import pytest

from deltalog.testing.coordinator_tests import CoordinatorTests
from deltalog.testing.coordinators import FaultyCoordinator, MemoryCoordinator, WatchedCoordinator


class TestInMemory(CoordinatorTests):
    @pytest.fixture
    def coordinator(self) -> MemoryCoordinator:
        return MemoryCoordinator()


class TestWrapped(CoordinatorTests):
    @pytest.fixture
    def coordinator(self) -> FaultyCoordinator:
        return FaultyCoordinator(WatchedCoordinator(MemoryCoordinator(), lambda *seen: None))
