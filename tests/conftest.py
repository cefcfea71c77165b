from __future__ import annotations

import sys
from pathlib import Path

# The tests' own support packages are imported as `tests.<name>`, whatever directory pytest is started in.
_ROOT = str(Path(__file__).resolve().parents[1])
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests.s3_env import ministack, moto  # noqa: E402, F401  (servers for whoever asks for them)

# No test judges a time: a busy machine must not fail an example.
settings.register_profile("deltalog", deadline=None)
settings.load_profile("deltalog")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run all cases of what a usual run takes samples of")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `long` is much like its neighbours on other servers or in other shapes."""
    if config.getoption("long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if not item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("long"))
