"""A session of an engine for tests, run by the Python of the engine's environment. It reads one question per line,
``{"code": …, "values": {…}}``, runs the code, and answers with what the code has assigned to ``result``, as JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the engine prints must not mix with the answers
    names: dict[str, Any] = {}
    for line in sys.stdin:
        question = json.loads(line)
        names.update(question["values"], result=None)
        try:
            exec(question["code"], names)
            answer = {"result": names["result"]}
        except BaseException as error:  # a panic of Rust is no Exception
            answer = {"error": [type(error).__name__, str(error)]}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
