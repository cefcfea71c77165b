"""Accepted and refused S3 locations and options; no message contains a secret."""

from __future__ import annotations

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from deltalog import CallError, DeltaTable, StoreError, open_store
from deltalog.storage.s3.store import S3Store
from tests.support.s3 import Proxy, Server, free_port
from tests.support.s3.rules import error_document


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/a/b/", "s3a://bucket/a/b"),
        ("s3://bucket/a b%20c", "s3://bucket/a b%20c"),
        ("s3://bucket/day=1?x#y", "s3://bucket/day=1?x#y"),
    ],
)
def test_the_location_is_kept_as_it_is_spelled(url: str, root: str) -> None:
    store = open_store(url, anon=True)
    assert (store.url, store.location("x")) == (root, f"{root}/x")


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3:///x", "s3://user:password@bucket/x", "s3://b/a/../c", "s3://b/./c", "s3://b/a//c", "s3n://b/x"],
)
def test_locations_that_mean_nothing_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(CallError) as caught:
        open_store(url)
    assert "password" not in str(caught.value)


def test_credentials_in_an_endpoint_are_refused_without_naming_them() -> None:
    for options in (
        {"endpoint_url": "http://me:a-sentinel@h"},
        {"client_kwargs": {"endpoint_url": "http://a-sentinel@h"}},
    ):
        with pytest.raises(CallError, match="endpoint_url") as caught:
            open_store("s3://bucket/x", **options)
        assert "a-sentinel" not in str(caught.value)


def test_options_that_are_not_known_are_named_without_their_values() -> None:
    with pytest.raises(CallError, match="secrett") as caught:
        open_store("s3://bucket/x", secrett="a-sentinel")
    assert "a-sentinel" not in str(caught.value)


@pytest.mark.parametrize("path", ["", "a//b", "../x", "a/../../x", "./x", "a/."])
def test_a_path_that_http_would_resolve_is_not_sent(seen: tuple[Proxy, S3Store], path: str) -> None:
    proxy, store = seen
    for call in (store.get, store.head, store.open_input, store.delete, lambda p: store.put_if_absent(p, b"")):
        with pytest.raises(StoreError, match="not a path below the root"):
            call(path)
    assert not proxy.requests


def test_a_key_that_s3_cannot_hold_is_not_sent(seen: tuple[Proxy, S3Store]) -> None:
    proxy, store = seen
    with pytest.raises(StoreError, match="more than 1024 bytes"):
        store.get("é" * 600)
    assert not proxy.requests


SENTINELS = {"key": "SENTINEL-key", "secret": "SENTINEL-secret", "token": "SENTINEL-token"}


@pytest.mark.parametrize("way", ["direct", "botocore"])
@pytest.mark.parametrize("fault", ["refused", "no server", "unknown host", "bad endpoint"])
def test_no_secret_reaches_a_message_a_repr_or_a_log(
    seen: tuple[Proxy, S3Store], fault: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    proxy, _ = seen
    proxy.rule = lambda request, forward: error_document(403, str(request.headers))
    endpoint = {
        "refused": f"http://127.0.0.1:{proxy.port}",
        "no server": f"http://127.0.0.1:{free_port()}",
        "unknown host": "http://no-such-host.invalid",
        "bad endpoint": "SENTINEL-endpoint",
    }[fault]
    more: dict[str, Any] = {"connect_timeout": 1, "retries": {"total_max_attempts": 1}}
    if way == "botocore":
        more["proxies"] = {"ftp": "http://u:SENTINEL-proxy@p"}
    options = {**SENTINELS, "endpoint_url": endpoint, "config_kwargs": more}
    store = open_store("s3://bucket/table", **options)
    said = [repr(store), str(store), store.url]
    calls: list[Callable[[], Any]] = [
        lambda: store.get("a"),
        lambda: store.get_many(["a", "b"]),
        lambda: store.list_from(""),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.open_input("a"),
        lambda: store.open_output("a").__enter__().finish(),  # type: ignore[attr-defined]
        lambda: DeltaTable.open(store),
        lambda: DeltaTable.open("s3://bucket/table", **dict[str, Any](options)),
    ]
    with caplog.at_level(logging.DEBUG, "deltalog"):
        for call in calls:
            with pytest.raises(StoreError) as caught:
                call()
            said.append("".join(traceback.format_exception(caught.value)))
    told = "\n".join([*said, *(record.getMessage() for record in caplog.records if record.name.startswith("deltalog"))])
    assert "SENTINEL" not in told
    assert "bucket" in told


def test_without_s3fs_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['s3fs'] = None\n"
        "import deltalog\n"
        "try: deltalog.DeltaTable.open('s3://bucket/x')\n"
        "except deltalog.CallError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'deltalog[s3]'" in done.stdout


def test_siblings_are_other_places_of_the_same_service(ministack: Server) -> None:
    store = ministack.store("a")
    sibling = store.sibling(f"s3a://{store.bucket}/b")
    sibling.put("x", b"1")
    assert S3Store(f"s3://{store.bucket}", **ministack.options()).get("b/x") == b"1"
    for url in ("/data/t", "memory://x", "http://127.0.0.1/x"):
        with pytest.raises(CallError, match="not on S3"):
            store.sibling(url)
