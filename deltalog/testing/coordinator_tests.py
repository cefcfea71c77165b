"""Tests for the guarantees of a Coordinator. Needs pytest.

Subclass ``CoordinatorTests`` in a test module and provide a coordinator; pytest collects the tests:

    class TestMyCoordinator(CoordinatorTests):
        @pytest.fixture
        def coordinator(self, tmp_path):
            return MyCoordinator(tmp_path)

``coordinator`` must return an empty catalog. If another process could open the same catalog, also override ``another``
to return a second handle on it. Guarantees that a second handle in the same process cannot check, such as surviving a
kill, need tests of their own in the subclass.
"""

from __future__ import annotations

from deltalog.testing.coordinator_document_tests import CoordinatorDocumentTests
from deltalog.testing.coordinator_table_tests import CoordinatorTableTests
from deltalog.testing.coordinator_transaction_tests import CoordinatorTransactionTests


class CoordinatorTests(CoordinatorTableTests, CoordinatorDocumentTests, CoordinatorTransactionTests):
    """Tests for the guarantees that deltalog.catalog.coordinator documents. The module docstring shows the usage."""
