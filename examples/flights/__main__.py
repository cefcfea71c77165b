"""The command line of the example: ``python -m examples.flights``.

Exit status: 0 success, 1 error, 2 wrong arguments. Errors go to standard error, with ``--json`` as one line of JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from deltalog import DeltaLogError
from examples.flights.preparation import INSTALL, check_spark, flights_file, prepare

DESCRIPTION = """\
Time travel on real data: a year of flights as monthly commits, in a table and in its copies.

Spark writes the 336,776 flights that left New York in 2013, one commit per month. Halfway, in-commit timestamps are
turned on. Then the table is copied, which changes every file time, and TIMESTAMP AS OF is queried again. Takes
about two minutes; needs Java 17 and pip install 'deltalog[demo]'.
"""


class _Arguments(argparse.ArgumentParser):
    """An argument parser that reports wrong arguments in the same way as other errors."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        _print_error("UsageError", "USAGE", message, self.as_json)
        if not self.as_json:
            print(f"Try '{self.prog} --help'.", file=sys.stderr)
        sys.exit(2)


def main(arguments: Sequence[str]) -> int:
    parser = _Arguments(
        prog="python -m examples.flights",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--path", metavar="DIR", type=Path, default=Path("flights-demo"),
        help="a new directory for the table, its copies and the pages (flights-demo)",
    )  # fmt: skip
    parser.add_argument("--months", metavar="N", type=_months, default=12, help="the number of months, 2 to 12 (12)")
    parser.add_argument("--overwrite", action="store_true", help="delete an earlier demo in that directory first")
    parser.add_argument("--json", action="store_true", help="print one JSON document at the end")
    parser.as_json = "--json" in arguments
    options = parser.parse_args(arguments)
    try:
        _run(options.path, options.months, options.overwrite, options.json)
    except DeltaLogError as error:
        _print_error(type(error).__name__, error.code, error.message, options.json)
        return 1
    except OSError as error:
        _print_error(type(error).__name__, "OS_ERROR", str(error), options.json)
        return 1
    except KeyboardInterrupt:
        _print_error("Abort", "INTERRUPTED", "Interrupted.", options.json)
        return 130
    return 0


def _months(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 2 <= int(text[:5]) <= 12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 2 to 12")
    return int(text)


def _run(path: Path, months: int, overwrite: bool, as_json: bool) -> None:
    # Check all requirements before writing anything and before importing the modules that have these requirements.
    data = flights_file()
    check_spark()
    prepare(path, overwrite)

    from examples.flights import flights
    from examples.flights.report import Report

    flights.run(data, path, months, Report(as_json))


def _print_error(name: str, code: str, message: str, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": name, "code": code, "message": message}), file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    # Indent continuation lines, so that a message of several lines is recognisable as one message.
    text = Text.assemble((f"error [{code}]", "bold red"), ": ", message.replace("\n", "\n  "))
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(text, soft_wrap=True)


if __name__ == "__main__":
    if find_spec("rich") is None:
        sys.exit(f"The demo prints its tables with rich, which is not installed: {INSTALL}")
    for stream in (sys.stdout, sys.stderr):  # the encoding of the locale may lack the symbols in the tables
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
