from __future__ import annotations

import collections
import hashlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# Support code can be imported as `tests.support.<name>` from whatever directory pytest is started in.
_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests.support import usual_run  # noqa: E402
from tests.support.browser import browser  # noqa: E402, F401 (a fixture)
from tests.support.s3 import ministack, moto, one_at_a_time  # noqa: E402, F401 (fixtures of servers)

# Hypothesis has no deadline, so that an example does not fail on a busy machine. Only runs with --long try new
# examples; all other runs of the same source tree use the same examples.
settings.register_profile("deltalog", max_examples=30, deadline=None, derandomize=True)
settings.register_profile("deltalog --long", max_examples=100, deadline=None)

if TYPE_CHECKING:
    from tests.support.postgresql import Postgres

_COLLECTED = pytest.StashKey[int]()

# A shell starts background jobs with SIGINT ignored, so tests of interrupts would never receive the signal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--usual",
        action="store_true",
        help="from suites with a JVM, run only tests that tests/support/usual_run.py names",
    )
    parser.addoption("--long", action="store_true", help="run all cases, including those that a usual run leaves out")
    parser.addoption("--extras", action="store_true", help="run tests/extras, which install packages")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("deltalog --long" if config.getoption("long") else "deltalog")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Without ``--long``, leave out tests marked `long`, and keep only every n-th case of tests marked `sampled(n)`.
    The skipped cases resemble the executed ones, but use other table shapes or servers. With ``--usual``, keep only the
    tests that usual_run names, in the suites that start a JVM."""
    is_long, is_usual, installs = (config.getoption(name) for name in ("long", "usual", "extras"))
    kept, left_out, seen = list[pytest.Function](), list[pytest.Function](), collections.Counter[object]()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        case = seen[item.function]
        seen[item.function] += 1
        if item.get_closest_marker("installs") and not installs:
            left_out.append(item)
            continue
        is_kept = is_long or not (item.get_closest_marker("long") or (sampled and case % sampled.args[0]))
        if is_usual and usual_run.is_limited(item.nodeid):
            entry = usual_run.entry_of(item.nodeid)
            is_kept = entry == item.nodeid or (is_kept and entry is not None)
        (kept if is_kept else left_out).append(item)
    if changing := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"give these cases explicit ids, because their ids differ in each run: {', '.join(changing)}"
        )
    if is_usual and (unknown := usual_run.without_tests(item.nodeid for item in items)):
        raise pytest.UsageError(
            f"tests/support/usual_run.py names entries that match no test: {', '.join(sorted(unknown))}"
        )
    config.stash[_COLLECTED] = len(items)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> str:
    """Print a line for dev.py; a hash in this line shows whether two runs selected the same tests."""
    which = hashlib.sha256("\n".join(sorted(item.nodeid for item in items)).encode()).hexdigest()[:8]
    return f"selected {len(items)} of {config.stash[_COLLECTED]} tests, {which}"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    from tests.support.postgresql import running  # not above: the tests of Spark have no psycopg

    with running() as server:
        yield server


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("long"))
