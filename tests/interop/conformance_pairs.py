"""Runs pairs of writers, and stores the results in tests/interop/conformance/pairs.json.

    python -m tests.interop.conformance_pairs                      # all pairs of all engines that write
    python -m tests.interop.conformance_pairs deltalog deltalake   # the pairs of these, and keeps the other results

docs/conformance.md describes the document; docs/conformance-matrix.md shows it.
"""

from __future__ import annotations
