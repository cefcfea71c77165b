"""A program that speaks the line protocol wrongly, each way by name: ``python line_programs.py WAY``. It uses only the
standard library."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HELLO = {"protocol": 1, "engine": "program", "version": "1"}
Request = dict[str, Any]


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def write_file(request: Request, data: bytes) -> None:
    Path(request["into"]).write_bytes(data)


def answer_rows(form: str, data: bytes) -> Callable[[Request], str]:
    def answer(request: Request) -> str:
        write_file(request, data)
        return json.dumps({"id": request["id"], "rows": form}) + "\n"

    return answer


def answer_with(**members: Any) -> Callable[[Request], str]:
    return lambda request: json.dumps({"id": request["id"], **members}) + "\n"


def forever(request: Request) -> str:
    while True:
        write("x" * 65536)


def hang(request: Request) -> str:
    time.sleep(3600)
    return ""


#: What the program answers to the first request; None: what it writes instead of the hello.
ANSWERS: dict[str, Callable[[Request], str]] = {
    "text": lambda request: "Loading the table…\n",
    "nothing": lambda request: "\n",
    "no-utf-8": lambda request: "\udcff\n",
    "array": lambda request: "[1]\n",
    "deep": lambda request: "[" * 500_000 + "\n",
    "long": lambda request: "x" * 3_000_000 + "\n",
    "long-answer": answer_with(value="x" * 2_000_000),
    "forever": forever,
    "control-characters": lambda request: "\x1b[2J\n",
    "other-id": lambda request: json.dumps({"id": request["id"] + 1, "value": 1}) + "\n",
    "no-id": lambda request: '{"value": 1}\n',
    "boolean-id": lambda request: '{"id": true, "value": 1}\n',
    "text-id": lambda request: json.dumps({"id": str(request["id"]), "value": 1}) + "\n",
    "no-kind": answer_with(),
    "two-kinds": answer_with(value=1, not_supported="it"),
    "kind-of-another-call": answer_with(engine=1),
    "text-version": answer_with(value="1"),
    "boolean-version": answer_with(value=True),
    "null-version": answer_with(value=None),
    "refused-text": answer_with(refused="no"),
    "refused-without-message": answer_with(refused={"type": "Error"}),
    "not-supported-number": answer_with(not_supported=5),
    "rows-without-file": answer_with(rows="json"),
    "rows-in-another-form": answer_rows("csv", b"id\n1\n"),
}
#: Ways in which the rows cannot be read; the case fails.
ROWS: dict[str, Callable[[Request], str]] = {
    "damaged-json": answer_rows("json", b"[{"),
    "deep-json": answer_rows("json", b"[" * 500_000),
    "json-without-rows": answer_rows("json", b"[1]"),
    "damaged-arrow": answer_rows("arrow", b"ARROW1 and nothing else"),
    "empty-arrow": answer_rows("arrow", b""),
    "damaged-parquet": answer_rows("parquet", b"PAR1 and nothing else PAR1"),
}
HELLOS: dict[str, Callable[[], None]] = {
    "hello-missing": lambda: sys.exit(3),
    "hello-text": lambda: write("Welcome!\n"),
    "hello-long": lambda: write("x" * 3_000_000),
    "hello-other-protocol": lambda: write('{"protocol": 2, "engine": "program"}\n'),
    "hello-number": lambda: write('{"protocol": 1, "engine": 5}\n'),
    "hello-long-name": lambda: write(json.dumps({**HELLO, "engine": "x" * 5000}) + "\n"),
    "hello-no-pattern": lambda: write(json.dumps({**HELLO, "lacks": "("}) + "\n"),
    "hello-packages": lambda: write(json.dumps({**HELLO, "environment": {"java": 17}}) + "\n"),
    "hello-calls-number": lambda: write(json.dumps({**HELLO, "calls": [5]}) + "\n"),
    "hello-error": lambda: write('{"protocol": 1, "error": "there is no Java here"}\n'),
}


def main(way: str) -> None:
    if way in HELLOS:
        HELLOS[way]()
        sys.stdin.read()
        return
    write(json.dumps(HELLO) + "\n")
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        if way == "twice":
            write(answer_with(value=number)(request) * 2)
        elif way == "hangs":
            hang(request)
        elif way == "dies":
            os._exit(7)
        elif way == "closes-its-output":
            os.close(1)
            hang(request)
        else:
            write({**ANSWERS, **ROWS}[way](request))


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")  # type: ignore[union-attr]
    main(sys.argv[1])
