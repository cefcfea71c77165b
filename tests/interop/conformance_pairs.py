"""Runs pairs of writers, and stores the results in tests/interop/conformance/pairs.json.

    python -m tests.interop.conformance_pairs                      # all pairs of all engines that write
    python -m tests.interop.conformance_pairs deltalog deltalake   # the pairs of these, and keeps the other results
    python -m tests.interop.conformance_pairs --pair deltalog/sail # one pair, likewise

docs/conformance.md describes the document; docs/conformance-matrix.md shows it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deltalog.conformance import ENGINES, SUITE_VERSION
from deltalog.conformance.pair_model import VARIANTS, document, merged
from deltalog.conformance.pairs import EngineSet, run_pairs
from tests.interop.conformance_matrix import ADAPTERS

RESULTS = Path(__file__).with_name("conformance") / "pairs.json"


def stored(file: Path = RESULTS) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def keep(found: dict[str, Any], file: Path) -> None:
    known = merged(stored(file), found) if file.exists() else found
    known["engines"] = {name: known["engines"][name] for name in ENGINES if name in known["engines"]}
    file.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(names: Sequence[str], pairs: Sequence[str], variants: Sequence[str], file: Path) -> None:
    chosen = [variant for variant in VARIANTS if not variants or variant.name in variants]
    with EngineSet(120.0, None, ADAPTERS) as engines:
        names = list(names) or engines.writers()
        found = [tuple(pair.split("/")) for pair in pairs] or [(a, b) for a in names for b in names if a != b]
        for pair, result in run_pairs(engines.engine_of, found, engines.available(), chosen):  # type: ignore[arg-type]
            # Stored one by one: a run of all takes long.
            keep(document(SUITE_VERSION, engines.versions(pair), {pair: [result]}), file)
            print(*pair, result.variant, result.outcome, result.judge, result.reason or "", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.interop.conformance_pairs")
    parser.add_argument("engines", nargs="*", help="engines that write; by default all that can run here")
    parser.add_argument("--pair", action="append", default=[], metavar="A/B", help="only this pair; may be repeated")
    parser.add_argument("--variant", action="append", default=[], help="only this variant; may be repeated")
    parser.add_argument("--into", type=Path, default=RESULTS, metavar="FILE", help="store the results there")
    parser.add_argument("--add", type=Path, metavar="FILE", help="run nothing, and add the results of a file")
    given = parser.parse_args()
    if given.add:
        keep(stored(given.add), given.into)
    else:
        main(given.engines, given.pair, given.variant, given.into)
