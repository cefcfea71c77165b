"""A credential marked by a sentinel is passed in every possible way: no message, repr, pickle or log contains it."""

from __future__ import annotations

import functools
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import deltalog
from deltalog import CallError, DeltaLogError, DeltaTable, StoreError, TransactionManager
from deltalog.catalog.locate import open_coordinator
from deltalog.errors import UnansweredRequestError
from deltalog.storage.dynamodb.client import DynamoTable
from deltalog.storage.registry import open_store
from deltalog.storage.s3.store import S3Store
from deltalog.testing.coordinators import MemoryCoordinator
from tests.support.s3 import Server

pytest.importorskip("s3fs")
pytest.importorskip("boto3")

SENTINEL = "SENTINELsecret0"
NOWHERE = "http://127.0.0.1:9"
OPTIONS: dict[str, Any] = {
    "key": "AKIA", "secret": "wJalr", "endpoint_url": NOWHERE, "client_kwargs": {"region_name": "us-east-1"}
}  # fmt: skip


def shown(error: BaseException) -> str:
    """Everything that a program may print about an error."""
    parts = [str(error), repr(error), "".join(traceback.format_exception(error)), repr(pickle.dumps(error))]
    return "\n".join(parts)


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], str]]:
    """All log records at DEBUG level, formatted."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    yield lambda: caplog.text


def refused(call: Callable[[], Any], kind: type[DeltaLogError] = DeltaLogError) -> DeltaLogError:
    with pytest.raises(kind) as raised:
        call()
    assert SENTINEL not in shown(raised.value)
    return raised.value


# ------------------------------------------------------------------------------------------------------ credentials

BROKEN: dict[str, dict[str, Any]] = {
    "token": {"token": SENTINEL + "\n"},
    "secret": {"secret": " " + SENTINEL},
    "key": {"key": SENTINEL + "\r\n"},
    "control": {"token": SENTINEL + "\x07" + SENTINEL},
    "nested": {"client_kwargs": {"region_name": "us-east-1", "aws_session_token": SENTINEL + "\n"}},
}
PLACES: dict[str, Callable[..., Any]] = {
    "catalog": lambda **options: TransactionManager("dynamodb:catalog", **options),
    "address": lambda **options: DeltaTable.open("catalog:dynamodb:catalog#a.b", **options),
    "table": lambda **options: DeltaTable.open("s3://bucket/table", **options),
    "create": lambda **options: DeltaTable.create("s3://bucket/table", pa.schema([("a", pa.int64())]), **options),
    "commit": lambda **options: open_store("s3://bucket/table", commit="dynamo:locks", **options),
    "check": lambda **options: deltalog.check("s3://bucket/table", **options),
    "commit table": lambda **options: deltalog.storage.describe_commit_table("locks", **options),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_credential_with_a_line_break_is_refused_before_a_request(
    place: str, broken: str, records: Callable[[], str]
) -> None:
    error = refused(lambda: PLACES[place](**{**OPTIONS, **BROKEN[broken]}), CallError)
    assert "white space" in str(error) and "No request was sent" in str(error)
    assert not isinstance(error, UnansweredRequestError) and "may have taken effect" not in str(error)
    assert SENTINEL not in records()


def test_one_of_the_environment_with_a_line_break_is_refused_too(
    monkeypatch: pytest.MonkeyPatch, records: Callable[[], str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalr")
    monkeypatch.setenv("AWS_SESSION_TOKEN", SENTINEL + "\n")
    options = {"endpoint_url": NOWHERE, "client_kwargs": {"region_name": "us-east-1"}}
    for call in PLACES.values():
        error = refused(functools.partial(call, **options), CallError)
        assert "AWS_SESSION_TOKEN" in str(error) and "No request was sent" in str(error)
    assert SENTINEL not in records()
    with pytest.raises(StoreError):  # the options contain credentials, so those in the environment are ignored
        DynamoTable("catalog", OPTIONS).get({"pk": "a"})


def test_a_request_that_cannot_be_put_together_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalog.storage.dynamodb.client.check_credentials", lambda options: None)
    options = {**OPTIONS, "token": SENTINEL + "\n"}
    error = refused(lambda: DynamoTable("catalog", options).put({"pk": "a"}, "attribute_not_exists(pk)"), StoreError)
    assert not isinstance(error, UnansweredRequestError)


# --------------------------------------------------------------------------------------------- secrets in locations

LOCATIONS = {
    "signed": f"https://127.0.0.1:9/x?X-Amz-Credential=AKIA&X-Amz-Signature={SENTINEL}",
    "azure": f"az://container/table?sv=2&sig={SENTINEL}",
    "s3": f"s3://bucket/table?X-Amz-Security-Token={SENTINEL}",
    "password": f"sftp://user:{SENTINEL}@127.0.0.1/table",
    "ftp": f"ftp://user:{SENTINEL}@127.0.0.1/table",
    "unknown": f"nosuch://user:{SENTINEL}@127.0.0.1/table",
    "catalog": f"catalog:postgres://user:{SENTINEL}@host/db#a.b",
    "no name": f"catalog:postgres://user:{SENTINEL}@host/db",
}
SCHEMA = pa.schema([("a", pa.int64())])
VERBS: dict[str, Callable[[str], Any]] = {
    "open": DeltaTable.open,
    "create": lambda url: DeltaTable.create(url, SCHEMA),
    "convert": DeltaTable.convert,
    "clone": lambda url: DeltaTable.create(f"memory://{id(url)}", SCHEMA).clone(url),
    "check": deltalog.check,
    "open_store": open_store,
    "obstore": lambda url: open_store(url, driver="obstore"),
    "dataset": lambda url: deltalog.Dataset(url),
    "allowed": lambda url: DeltaTable.open(_table(), allowed_paths=[url]),
    "catalog": lambda url: TransactionManager(url.removeprefix("catalog:")),
    "coordinator": lambda url: open_coordinator(url.removeprefix("catalog:")),
    "managed": lambda url: TransactionManager(MemoryCoordinator()).create_table("a.b", url, SCHEMA),
}


def _table() -> Any:
    store = open_store("memory://sentinels")
    if store.head("_delta_log/00000000000000000000.json") is None:
        DeltaTable.create(store, SCHEMA)
    return store


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("location", LOCATIONS)
def test_a_location_with_a_password_or_a_signature_is_refused_and_not_shown(
    location: str, verb: str, records: Callable[[], str]
) -> None:
    error = refused(lambda: VERBS[verb](LOCATIONS[location]), CallError)
    assert "in its URL" in str(error)
    assert SENTINEL not in records()


@pytest.mark.parametrize(
    "url", ["s3://bucket/a?b=c", "memory://a?b=c", "abfss://container@account/x", "sftp://user@host/x"]
)
def test_other_locations_are_as_they_were(url: str) -> None:
    try:
        open_store(url)
    except DeltaLogError as error:
        assert "in its URL" not in str(error)


# ------------------------------------------------------------------------------------------------------- logs at DEBUG


@pytest.mark.parametrize("through", ["direct", "botocore"])
def test_no_log_of_requests_to_s3_has_the_token(through: str, ministack: Server, records: Callable[[], str]) -> None:
    bucket = ministack.bucket()
    options = {**ministack.options(), "token": SENTINEL}
    if through == "botocore":
        options["config_kwargs"] = {"user_agent_extra": "sentinels"}
    table = DeltaTable.create(f"s3://{bucket}/table", SCHEMA, data=pa.table({"a": [1]}), **options)
    assert DeltaTable.open(f"s3://{bucket}/table", **options).snapshot().num_files == 1
    assert "botocore" in records() or through == "direct"
    assert SENTINEL not in records() and SENTINEL not in repr(table)
    store = table.snapshot().reader.store
    assert isinstance(store, S3Store) and SENTINEL not in repr(store) + str(vars(store))


def test_no_log_of_requests_to_dynamodb_has_the_token(moto: Server, records: Callable[[], str]) -> None:
    options = {**moto.options(), "token": SENTINEL}
    refused(lambda: DynamoTable("nothing-there", options).get({"pk": "a"}), StoreError)
    assert "botocore" in records() and SENTINEL not in records()
