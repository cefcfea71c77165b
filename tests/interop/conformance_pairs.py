"""Runs pairs of writers, and stores the results in tests/interop/conformance/pairs.json.

    python -m tests.interop.conformance_pairs                      # all pairs of all engines that write
    python -m tests.interop.conformance_pairs deltalog deltalake   # the pairs of these, and keeps the other results
    python -m tests.interop.conformance_pairs --with polars        # the pairs of an engine with all others, likewise

docs/conformance.md describes the document; docs/conformance-matrix.md shows it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalog.conformance import SUITE_VERSION
from deltalog.conformance.pair_model import VARIANTS, document, merged
from deltalog.conformance.pairs import EngineSet, run_pairs

RESULTS = Path(__file__).with_name("conformance") / "pairs.json"


def stored() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return found


def keep(found: dict[str, Any]) -> None:
    known = merged(stored(), found) if RESULTS.exists() else found
    RESULTS.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(names: Sequence[str], of: str | None, variants: Sequence[str]) -> None:
    chosen = [variant for variant in VARIANTS if not variants or variant.name in variants]
    with EngineSet(120.0, None) as engines:
        names = list(names) or engines.writers()
        pairs = [(a, b) for a in names for b in names if a != b and of in (None, a, b)]
        for pair, results in run_pairs(engines.engine_of, pairs, engines.available(names), chosen):
            # Stored pair by pair: a run of all takes long.
            versions = engines.versions([name for name in names if name in pair])
            keep(document(SUITE_VERSION, versions, {pair: results}))
            for each in results:
                print(*pair, each.variant, each.outcome, each.judge, each.reason or "", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.conformance_pairs")
    parser.add_argument("engines", nargs="*", help="engines that write; by default all that can run here")
    parser.add_argument("--with", dest="of", metavar="ENGINE", help="only the pairs of this engine")
    parser.add_argument("--variant", action="append", default=[], help="only this variant; may be repeated")
    given = parser.parse_args()
    main(given.engines, given.of, given.variant)
