"""ObstoreStore keeps the guarantees of a LogStore, and infers no more from obstore's responses than they state."""

from __future__ import annotations

import datetime
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from deltalog import CallError, DeltaTable, StoreError, open_store
from deltalog.errors import ObjectNotFoundError, UnsafeStoreError
from deltalog.storage.base import PutOutcome
from deltalog.storage.fs import LocalStore
from deltalog.storage.obstore_store import ObstoreStore
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import environment, ids, rows
from tests.support.s3 import Answer, Proxy, Request, Rule, Server, free_port, pass_on, proxied
from tests.support.s3.rules import (
    carried_out_but_answered,
    error_document,
    refused,
    reset_after,
    reset_before,
    silent_for,
)

COMMIT = "_delta_log/00000000000000000000.json"
FAST = datetime.timedelta(milliseconds=1)
COMMITTED, EXISTS, UNKNOWN = PutOutcome.COMMITTED, PutOutcome.EXISTS, PutOutcome.UNKNOWN


def bucket_of_obstore(server: Server, prefix: str = "a table", **more: Any) -> obstore.store.S3Store:
    """obstore's own store for a prefix in a new bucket."""
    return obstore.store.S3Store(
        more.pop("bucket", None) or server.bucket(),
        prefix=prefix,
        access_key_id="testing-key-id",
        secret_access_key="testing-secret-key",
        endpoint=f"http://127.0.0.1:{server.port}",
        region="us-east-1",
        client_options={"allow_http": True, **more.pop("client_options", {})},
        **more,
    )


class TestOnMinistack(LogStoreTests):
    rounds = 8

    @pytest.fixture
    def store(self, ministack: Server) -> Any:
        return open_store(bucket_of_obstore(ministack))

    @pytest.fixture
    def another(self, store: ObstoreStore, ministack: Server) -> Any:
        return open_store(store.url, driver="obstore", **ministack.options())


class TestOnMoto(LogStoreTests):
    """A second S3 server, which rejects requests with other errors, and a prefix that looks percent-encoded."""

    rounds = 8

    @pytest.fixture
    def store(self, one_at_a_time: Server) -> Any:
        return open_store(f"s3://{one_at_a_time.bucket()}/deep/%41 table", driver="obstore", **one_at_a_time.options())

    @pytest.fixture
    def another(self, store: ObstoreStore, one_at_a_time: Server) -> Any:
        """A store through s3fs; both stores must see the same keys."""
        return open_store(store.url, **one_at_a_time.options())


class TestOnTheMemoryOfObstore(LogStoreTests):
    rounds = 10

    @pytest.fixture
    def store(self) -> Any:
        return open_store(obstore.store.MemoryStore())


class TestOnTheDiskOfObstore(LogStoreTests):
    """deltalog uses LocalStore instead, which also calls fsync."""

    rounds = 10

    @pytest.fixture
    def store(self, tmp_path: Path) -> Any:
        store = open_store(obstore.store.LocalStore(tmp_path / "t", mkdir=True))
        assert isinstance(store, LocalStore) and store.root == str(tmp_path / "t")
        return store


@pytest.mark.parametrize("kind", ["ministack", "moto", "memory", "disk"])
def test_a_table_from_its_creation_to_time_travel(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if kind in ("ministack", "moto"):
        location: Any = bucket_of_obstore(request.getfixturevalue(kind))
    else:
        location = obstore.store.MemoryStore() if kind == "memory" else obstore.store.LocalStore(tmp_path)
    table = DeltaTable.create(location, rows(1).schema, data=rows(1))
    for number in range(2, 13):
        table.append(rows(number))
    again = DeltaTable.open(location)
    assert ids(again) == list(range(1, 13))
    assert [entry.version for entry in again.history()] == list(range(11, -1, -1))
    assert sorted(again.snapshot(version=3).scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]


# ------------------------------------------------------------------------------- the outcome of a conditional PUT


@pytest.fixture(scope="module")
def proxy_and_bucket(ministack: Server) -> Iterator[tuple[Proxy, str, Server]]:
    with proxied(ministack) as (proxy, server):
        yield proxy, ministack.bucket(), server


@pytest.fixture
def seen(proxy_and_bucket: tuple[Proxy, str, Server]) -> Iterator[tuple[Proxy, ObstoreStore]]:
    """A store that has already sent its first conditional write, so that the proxy records only the requests of a test.
    The store repeats a failed request up to twice, after short pauses."""
    proxy, bucket, server = proxy_and_bucket
    store = ObstoreStore(
        bucket_of_obstore(
            server,
            f"{uuid.uuid4()}/table",
            bucket=bucket,
            client_options={"timeout": "2s"},
            retry_config={"max_retries": 2, "backoff": {"init_backoff": FAST, "max_backoff": FAST, "base": 2}},
        )
    )
    store.put_if_absent("probed", b"")
    proxy.requests.clear()
    yield proxy, store
    proxy.rule = pass_on


FATES: dict[str, tuple[Rule, tuple[PutOutcome, ...] | None, bool]] = {
    # for each kind of answer: the rule that produces it, the possible outcomes (None: a StoreError), and whether the
    # object exists afterwards
    "own, repeated": (carried_out_but_answered(500, "InternalError"), (EXISTS, UNKNOWN), True),
    "409": (refused(409, "ConditionalRequestConflict"), (EXISTS, UNKNOWN), False),
    "503 before": (refused(503, "SlowDown"), (UNKNOWN,), False),
    "500 before": (refused(500, "InternalError"), (UNKNOWN,), False),
    "reset before": (reset_before, (UNKNOWN,), False),
    "reset after": (reset_after, (EXISTS, UNKNOWN), True),
    "no answer in time": (silent_for(3), (EXISTS, UNKNOWN), True),
    "403": (refused(403, "AccessDenied"), None, False),
    "400, expired": (refused(400, "ExpiredToken"), None, False),
    "404": (refused(404, "NoSuchBucket"), None, False),
    "501": (refused(501, "NotImplemented"), None, False),
}


@pytest.mark.parametrize("fate", FATES)
def test_what_became_of_a_put_is_never_guessed(seen: tuple[Proxy, ObstoreStore], fate: str) -> None:
    proxy, store = seen
    rule, outcomes, there = FATES[fate]
    proxy.rule = rule
    if outcomes is None:
        with pytest.raises(StoreError, match=r"cannot create _delta_log/0+\.json"):
            store.put_if_absent(COMMIT, b"mine")
    else:
        assert store.put_if_absent(COMMIT, b"mine") in outcomes
    proxy.rule = pass_on
    assert (store.head(COMMIT) is not None) == there
    if there:
        assert store.get(COMMIT) == b"mine"


@pytest.mark.parametrize("fate", [name for name, (_, outcomes, _) in FATES.items() if outcomes is not None])
def test_a_commit_is_made_once_whatever_becomes_of_its_put(seen: tuple[Proxy, ObstoreStore], fate: str) -> None:
    proxy, store = seen
    table = DeltaTable.create(store, rows(1).schema, data=rows(1), environment=environment())
    rule, _, _ = FATES[fate]
    left = [3]  # the client sends the request three times; then the service works again

    def stumble(request: Request, forward: Callable[[], Answer]) -> Answer:
        if request.method == "PUT" and request.key.endswith("1.json") and left[0]:
            left[0] -= 1
            return rule(request, forward)
        return forward()

    proxy.rule = stumble
    assert table.append(rows(2)).version == 1
    assert left[0] < 3
    proxy.rule = pass_on
    again = DeltaTable.open(store)
    assert ids(again) == [1, 2] and again.version == 1


# ------------------------------------------------------------------------------------------ stores that are refused


def test_a_service_that_ignores_conditions_is_refused_before_the_commit(ministack: Server) -> None:
    with proxied(ministack) as (proxy, server):
        store = ObstoreStore(bucket_of_obstore(server))

        def forgetful(request: Request, forward: Callable[[], Answer]) -> Answer:
            if request.headers.get("if-none-match"):
                return 200, [("ETag", '"0"')], b""
            return forward()

        proxy.rule = forgetful
        with pytest.raises(UnsafeStoreError, match="2 of 2 writers"):
            store.put_if_absent(COMMIT, b"")
        assert store.list_from("_delta_log") == []


def test_a_store_without_conditions_is_refused(ministack: Server) -> None:
    store = ObstoreStore(bucket_of_obstore(ministack, conditional_put="disabled"))
    with pytest.raises(UnsafeStoreError, match="cannot create objects exclusively"):
        store.put_if_absent(COMMIT, b"")
    assert store.list_from("_delta_log") == []


def test_the_fsspec_wrapper_of_obstore_is_refused() -> None:
    """The wrapper ignores the write mode, and so overwrites files."""
    import obstore.fsspec

    filesystem = obstore.fsspec.FsspecStore("memory")
    with pytest.raises(UnsafeStoreError):
        open_store("t", filesystem=filesystem).put_if_absent(COMMIT, b"")


# ----------------------------------------------------------------------------------------------------- requests


def test_a_listing_begins_at_its_start(seen: tuple[Proxy, ObstoreStore]) -> None:
    proxy, store = seen
    for number in range(12):
        store.put(f"_delta_log/{number:020d}.json", b"")
    store.put("_delta_log/_sidecars/a", b"")
    with proxy.counted() as made:
        found = store.list_from("_delta_log", f"{9:020d}.")
    assert [int(meta.name[:20]) for meta in found] == [9, 10, 11]
    assert len(made) == 1 and "start-after=" in made[0].target


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 3_000_000])
def test_a_file_is_read_as_it_is_wherever_one_looks(seen: tuple[Proxy, ObstoreStore], size: int) -> None:
    _, store = seen
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    store.put("f", data)
    file = store.open_input("f")
    assert (file.size(), file.read(), file.read(1), file.tell()) == (size, data, b"", size)
    for start in (0, size // 2, max(size - 70_000, 0), size, size + 9):
        for length in (0, 1, 100_000, size):
            assert file.seek(start) == start
            assert file.read(length) == data[start : start + length], (start, length)


def test_a_small_file_is_one_request_and_the_head_of_one_too(seen: tuple[Proxy, ObstoreStore]) -> None:
    proxy, store = seen
    store.put("f", b"0123456789" * 1000)
    for read in (lambda: store.open_input("f").read(), lambda: store.get("f", 100), lambda: store.head("f")):
        with proxy.counted() as made:
            assert read()
        assert len(made) == 1


def test_a_stream_that_cannot_be_sent_leaves_nothing(seen: tuple[Proxy, ObstoreStore]) -> None:
    proxy, store = seen

    def rule(request: Request, forward: Callable[[], Answer]) -> Answer:
        last = request.method == "POST" and "uploadId" in request.target
        return error_document(403, "AccessDenied") if last else forward()

    proxy.rule = rule
    with pytest.raises(StoreError, match="cannot write f"), store.open_output("f") as file:
        file.write(bytes(6 << 20))
    assert store.head("f") is None


@pytest.mark.parametrize("call", ["get", "head", "open_input", "list_from", "delete", "get_many"])
def test_a_refusal_is_an_error_of_the_store_and_not_an_absence(seen: tuple[Proxy, ObstoreStore], call: str) -> None:
    proxy, store = seen
    proxy.rule = refused(403, "AccessDenied")
    with pytest.raises(StoreError, match="Check the location, the credentials") as caught:
        getattr(store, call)(["a", "b"] if call == "get_many" else "a")
    assert not isinstance(caught.value, ObjectNotFoundError)


# --------------------------------------------------------------------------------------- locations and options


def test_options_have_the_names_of_s3fs(ministack: Server) -> None:
    store: Any = open_store(
        f"s3a://{ministack.bucket()}/t",
        driver="obstore",
        **ministack.options(
            token="t", config_kwargs={"read_timeout": 7, "connect_timeout": 3, "retries": {"max_attempts": 4}}
        ),
    )
    assert store.url.startswith("s3a://") and store.location("x") == f"{store.url}/x"
    assert store._store.config["session_token"] == "t" and store._store.retry_config["max_retries"] == 4
    assert store.put_if_absent(COMMIT, b"") is COMMITTED


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"secrett": "a-sentinel"}, "secrett"),
        ({"profile": "a-sentinel"}, "profile"),
        ({"client_kwargs": {"verify": "a-sentinel"}}, "verify"),
        ({"endpoint_url": "http://me:a-sentinel@h"}, "endpoint_url"),
        ({"client_options": {"nonsense": "a-sentinel"}}, "client_options"),
    ],
)
def test_options_that_are_not_known_are_named_without_their_values(options: dict[str, Any], told: str) -> None:
    with pytest.raises(CallError, match=told) as caught:
        open_store("s3://bucket/x", driver="obstore", **options)
    assert "a-sentinel" not in str(caught.value)


def test_a_location_with_a_password_is_refused_without_naming_it() -> None:
    with pytest.raises(CallError, match="given with credentials in its URL") as caught:
        open_store("s3://me:a-sentinel@bucket/x", driver="obstore")
    assert "a-sentinel" not in str(caught.value)


def test_no_secret_reaches_a_message_or_a_repr() -> None:
    store = obstore.store.AzureStore(
        "container",
        account_name="account",
        sas_key="sv=1&sig=SENTINEL-signature",
        endpoint=f"http://127.0.0.1:{free_port()}",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    opened = open_store(store)
    with pytest.raises(StoreError) as caught:
        opened.get("a")
    assert "SENTINEL" not in f"{caught.value} {opened!r} {caught.value.__cause__}"


@pytest.mark.parametrize(
    ("location", "options", "told"),
    [
        ("s3://bucket/x", {"driver": "boto"}, "no driver 'boto'"),
        ("nowhere://bucket/x", {"driver": "obstore"}, "cannot be opened by obstore"),
        (obstore.store.HTTPStore("http://127.0.0.1:1"), {}, "The location of HTTPStore is unknown"),
        (obstore.store.MemoryStore(), {"key": "k"}, "do not apply to a store of obstore"),
        (5, {}, "int is not a table location"),
    ],
)
def test_what_cannot_be_opened_is_said(location: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(CallError, match=told):
        open_store(location, **options)


@pytest.mark.parametrize("path", ["", "a//b", "../x", "a/../../x", "./x", "a/."])
def test_a_path_that_leaves_the_root_is_not_asked_for(path: str) -> None:
    store = open_store(obstore.store.MemoryStore())
    for call in (store.get, store.head, store.open_input, store.delete, lambda p: store.put_if_absent(p, b"")):
        with pytest.raises(StoreError, match="not a path below the root"):
            call(path)


def test_a_forked_child_is_told_instead_of_waiting_for_ever() -> None:
    code = (
        "import os, signal, deltalog, obstore.store\n"
        "store = deltalog.open_store(obstore.store.MemoryStore())\n"
        "store.put('a', b'1')\n"
        "if os.fork() == 0:\n"
        "    signal.alarm(30)\n"
        "    calls = [lambda: store.get('a'), lambda: store.list_from(''), lambda: store.put_if_absent('b', b'')]\n"
        "    for call in calls:\n"
        "        try: call()\n"
        "        except deltalog.StoreError as error: print(str(error), flush=True)\n"
        "    os._exit(0)\n"
        "assert os.wait()[1] == 0 and store.get('a') == b'1'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.count("cannot be used after that") == 3


def test_without_obstore_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "import deltalog\n"
        "try: deltalog.DeltaTable.open('s3://bucket/x', driver='obstore')\n"
        "except deltalog.CallError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'deltalog[obstore]'" in done.stdout
