"""The subprocess in which conformance cases run. This process reads one case id per line from standard input and writes
one JSON outcome per line to standard output. Started as ``python -m deltalog.conformance.worker ENGINE``."""

from __future__ import annotations

import json
import os
import sys

from deltalog.conformance.cases import all_cases
from deltalog.conformance.engines import load_engine
from deltalog.conformance.runner import run
from deltalog.errors import CallError


def main() -> None:
    # Output of the engine must not mix with the outcomes.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())

    def answer(document: dict[str, object]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    try:
        engine = load_engine(sys.argv[1])
    except CallError as error:
        answer({"error": error.message})
        return
    answer({"engine": engine.name, "version": engine.version})
    cases = {case.id: case for case in all_cases()}
    for line in sys.stdin:
        for outcome in run(engine, [cases[line.strip()]]):
            answer(outcome.to_json())


if __name__ == "__main__":
    main()
