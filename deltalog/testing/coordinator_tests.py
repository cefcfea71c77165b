"""What every Coordinator guarantees, as tests. Needs pytest, as ``store_contract`` does.

Subclass it in a test module and give it a coordinator; pytest collects the rest:

    class TestMyCoordinator(CoordinatorTests):
        @pytest.fixture
        def coordinator(self, tmp_path):
            return MyCoordinator(tmp_path)

``coordinator`` must be empty. Where another handle on the same catalog can be had (another process would have one),
override ``another`` too. What only some can show, as surviving a kill, is left to the subclass.
"""

from __future__ import annotations

from deltalog.testing.coordinator_table_tests import CoordinatorTableTests
from deltalog.testing.coordinator_transaction_tests import CoordinatorTransactionTests


class CoordinatorTests(CoordinatorTableTests, CoordinatorTransactionTests):
    """The sentences of deltalog.catalog.coordinator. See the module for how to use it."""
