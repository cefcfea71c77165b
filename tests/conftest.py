from __future__ import annotations

import collections
import signal
import sys
from pathlib import Path

# Support code is imported as `tests.support.<name>`, whatever directory pytest is started in.
_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests.support.s3 import ministack, moto, one_at_a_time  # noqa: E402, F401  (servers for whoever asks for them)

# No test judges a time: a busy machine must not fail an example.
settings.register_profile("deltalog", deadline=None)
settings.load_profile("deltalog")

# A shell starts its background jobs with SIGINT ignored, and no test of an interrupt would ever see one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run all cases of what a usual run takes samples of")
    parser.addoption("--extras", action="store_true", help="run tests/extras, which install packages")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Function]) -> None:
    """Without ``--long``: none that is marked `long`, and of what is marked `sampled` each so many-th case. These are
    cases that are much like others, in other shapes or on other servers."""
    is_long, installs = config.getoption("long"), config.getoption("extras")
    kept, left_out, seen = list[pytest.Function](), list[pytest.Function](), collections.Counter[object]()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        case = seen[item.function]
        seen[item.function] += 1
        if item.get_closest_marker("installs") and not installs:
            left_out.append(item)
            continue
        is_kept = is_long or not (item.get_closest_marker("long") or (sampled and case % sampled.args[0]))
        (kept if is_kept else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("long"))
