"""The JVM with Unity Catalog's client and the kernel, one for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.unity_clients.jvm import Jvm


@pytest.fixture(scope="session")
def unity_jvm() -> Iterator[Jvm]:
    jvm = Jvm()
    try:
        yield jvm
    finally:
        jvm.stop()
