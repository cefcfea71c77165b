"""Tests for the guarantees of a Coordinator. Needs pytest.

Subclass ``CoordinatorTests`` in a test module and provide a coordinator; pytest collects the tests:

    class TestMyCoordinator(CoordinatorTests):
        @pytest.fixture
        def coordinator(self, tmp_path):
            return MyCoordinator(tmp_path)

``coordinator`` must be empty. If a second handle on the same catalog can be opened, as another process would, override
``another`` too. Guarantees that need more, such as surviving a kill, are left to the subclass.
"""

from __future__ import annotations

from deltalog.testing.coordinator_table_tests import CoordinatorTableTests
from deltalog.testing.coordinator_transaction_tests import CoordinatorTransactionTests


class CoordinatorTests(CoordinatorTableTests, CoordinatorTransactionTests):
    """The guarantees of deltalog.catalog.coordinator. The module docstring shows the usage."""
