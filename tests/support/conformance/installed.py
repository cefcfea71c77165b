"""Engines in environments of their own, for tests of their adapters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deltalog.conformance import start_engine
from deltalog.conformance.environments import cache_directory, description_of, environment_of
from deltalog.conformance.remote import RemoteEngine


@contextmanager
def installed_engine(name: str, install: bool) -> Iterator[RemoteEngine]:
    """A started engine. If it is not in the cache of environments, it is installed, or the test is skipped."""
    if description_of(environment_of(name, cache_directory())) is None:
        if not install:
            pytest.skip(f"{name} is not installed: deltalog conformance install {name}, or --long")
        from deltalog.conformance import installation

        installation.install(name)
    with start_engine(name) as engine:
        yield engine
