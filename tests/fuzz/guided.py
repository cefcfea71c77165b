"""Runs the same targets under atheris, which chooses the next bytes of a file by the coverage of deltalog.

The damaged file is the input, and the valid files are the initial corpus. A finding ends the run with a traceback, and
atheris keeps the input as ``crash-<hash>`` in the working directory.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def run_guided(target: str, seconds: float, first_seed: int) -> int:
    """Fuzz one target for ``seconds`` in a process that imports deltalog with instrumentation. Returns 0 if nothing was
    found."""
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: pip install atheris (Linux, CPython to 3.13).", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as corpus:
        arguments = [target, str(max(1, round(seconds))), str(first_seed), corpus]
        return subprocess.run([sys.executable, "-m", "tests.fuzz.guided", *arguments], cwd=_ROOT).returncode


def _fuzz(target: str, seconds: str, first_seed: str, corpus: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["deltalog"]):
        from tests.fuzz.targets import TARGETS, Case
    wanted = TARGETS[target]
    bases = [(name, *make()) for name, make in sorted(wanted.tables.items())]
    outcomes, kinds = Counter[str](), set[str]()
    started = time.monotonic()

    def one(data: bytes) -> None:
        """The first byte chooses the table and the file; the remaining bytes are the file's content. Ends the process
        once ``seconds`` have passed."""
        if time.monotonic() - started > float(seconds):
            _report(target, outcomes, len(kinds), time.monotonic() - started)
            os._exit(0)
        choice = data[0] if data else 0
        table, files, paths = bases[choice % len(bases)]
        path = paths[choice // len(bases) % len(paths)]
        case = Case(target, -1, table, path, {**files, path: data[1:]}, wanted.focus)
        found, wrong = wanted.run(case, brief=True)
        outcomes.update(("executions", *("ok" if answer.startswith("=") else answer for answer in found.values())))
        kinds.add(f"{table} {list(found.values())}")
        if wrong:
            raise AssertionError(wrong)

    _write_corpus(Path(corpus), bases, wanted.damage, Random(first_seed))
    options = ["-rss_limit_mb=4096", "-timeout=120", "-max_len=65536", "-verbosity=0"]
    atheris.Setup([sys.argv[0], corpus, *options], one)
    atheris.Fuzz()


def _write_corpus(
    directory: Path, bases: list[Any], damage: Callable[[bytes, str, Random], bytes], random: Random
) -> None:
    """Write each valid file and some seeded mutations of it."""
    for table, (_, files, paths) in enumerate(bases):
        for number, path in enumerate(paths):
            choice = bytes([(table + number * len(bases)) % 256])
            inputs = [files[path], *(damage(files[path], path, random)[:65535] for _ in range(4))]
            for again, data in enumerate(inputs):
                (directory / f"{table}-{number}-{again}").write_bytes(choice + data)


def _report(target: str, outcomes: Counter[str], kinds: int, seconds: float) -> None:
    done = outcomes.pop("executions", 0)
    top = ", ".join(f"{code} {count}" for code, count in outcomes.most_common(8))
    print(
        f"{target}: {done} executions in {seconds:.0f} s, {kinds} distinct outcomes, 0 violations ({top})", flush=True
    )


if __name__ == "__main__":
    _fuzz(*sys.argv[1:])
