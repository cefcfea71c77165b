"""The conformance cases about tables of a Unity Catalog: the kernel as an engine, with the server of deltalog."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltalog.conformance import Case, managed_cases, run_managed
from tests.support.unity_clients import Jvm, UnityServer, unity_server
from tests.support.unity_clients.conformance import KernelEngine

# What the kernel does not offer, or the kit's adapter of it.
SKIPPED = {
    "managed-append-after-checkpoint",
    "managed-append-only",
    "managed-changes",
    "managed-checkpoint",
    "managed-delete",
    "managed-delete-begun-before",
    "managed-history",
    "managed-overwrite",
    "managed-property-removed",
    "managed-restore",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    with unity_server(tmp_path_factory.mktemp("kit"), "--set=recovery.every_seconds=0") as made:
        yield made


@pytest.mark.parametrize("case", managed_cases(), ids=lambda case: case.id)
def test_the_kernel(unity_jvm: Jvm, server: UnityServer, case: Case) -> None:
    (outcome,) = run_managed(KernelEngine(unity_jvm), [case], server.url)
    assert outcome.outcome == ("skipped" if case.id in SKIPPED else "passed"), outcome.reason
