"""The contract of ``Transport``: both implementations see the same objects, and report failures in the same way."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from deltalog.storage.base import PutOutcome
from deltalog.storage.s3.store import S3Store
from deltalog.storage.s3.transport import Transport, code_of, status_of
from tests.support.s3 import Proxy, Server, free_port, proxied
from tests.support.s3.rules import only_once, refused, reset_after, reset_before

NAMES = ["a", "a b+c%20d", "ü~'()*!", "x?versionId=1", "k=v&w", "日本/é"]


def direct(store: S3Store) -> Transport:
    found = store._client._direct(store.bucket)
    assert found is not None
    return found


def through_botocore(store: S3Store) -> Transport:
    return store._client._through_botocore(store.bucket)


Way = Callable[[S3Store], Transport]


@pytest.fixture(params=[direct, through_botocore], ids=["direct", "botocore"])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture
def sent(ministack: Server, way: Way) -> Transport:
    return way(ministack.store(""))


@pytest.fixture
def seen(ministack: Server, way: Way) -> Iterator[tuple[Proxy, Transport]]:
    with proxied(ministack) as (proxy, server):
        store = server.store("", config_kwargs={"read_timeout": 3})
        proxy.requests.clear()
        yield proxy, way(store)


def put(sent: Transport, key: str, data: bytes, **conditions: str) -> PutOutcome:
    outcome, error = sent.put_once(key, data, conditions, 30)
    assert (error is None) == (outcome is PutOutcome.COMMITTED)
    return outcome


def test_a_put_is_made_under_its_condition(sent: Transport) -> None:
    assert put(sent, "k", b"1", IfNoneMatch="*") is PutOutcome.COMMITTED
    outcome, error = sent.put_once("k", b"2", {"IfNoneMatch": "*"}, 30)
    assert outcome is PutOutcome.EXISTS and error is not None and status_of(error) == 412
    etag = sent.call("head_object", Key="k")["ETag"]
    assert put(sent, "k", b"3", IfMatch=etag) is PutOutcome.COMMITTED
    assert put(sent, "k", b"4", IfMatch=etag) is PutOutcome.EXISTS
    assert put(sent, "k", b"5") is PutOutcome.COMMITTED
    assert sent.read("k")[0] == b"5"


def test_an_object_is_read_in_whole_and_in_part(sent: Transport) -> None:
    put(sent, "k", b"0123456789")
    whole, head = sent.read("k")
    assert (whole, head["ETag"]) == (b"0123456789", sent.call("head_object", Key="k")["ETag"])
    part, head = sent.read("k", "bytes=2-4", head["ETag"], 3)
    assert (part, head["ContentRange"]) == (b"234", "bytes 2-4/10")
    assert sent.read("k", "bytes=-3")[0] == b"789"
    with pytest.raises(Exception) as replaced:
        sent.read("k", etag='"another"')
    assert status_of(replaced.value) == 412
    with pytest.raises(Exception) as beyond:
        sent.read("k", "bytes=99-")
    assert status_of(beyond.value) == 416


def test_many_objects_are_read_in_their_order(sent: Transport) -> None:
    keys = [f"k{number}" for number in range(40)]
    for key in keys:
        put(sent, key, key.encode())
    absent = list[str]()
    found = sent.read_many([*keys, "none"], "", 0, lambda key, error: absent.append(f"{key} {status_of(error)}"))
    assert found == [*(key.encode() for key in keys), b""] and absent == ["none 404"]
    assert sent.read_many(keys[:3], "bytes=0-0", 1, raised) == [b"k"] * 3
    with pytest.raises(ZeroDivisionError):
        sent.read_many(["none", *keys], "", 0, lambda key, error: 1 // 0)  # type: ignore[arg-type]


def raised(key: str, error: Exception) -> None:
    raise error


@pytest.mark.parametrize("method", ["head_object", "read"])
def test_an_absent_object_has_a_status(sent: Transport, method: str) -> None:
    with pytest.raises(Exception) as absent:
        sent.read("none") if method == "read" else sent.call(method, Key="none")
    assert status_of(absent.value) == 404
    assert code_of(absent.value) == ("404" if method == "head_object" else "NoSuchKey")


def test_objects_are_written_listed_and_deleted_by_every_name(sent: Transport) -> None:
    for name in NAMES:
        assert sent.takes("put_object", {"Key": f"d/{name}", "Body": name.encode()})
        sent.call("put_object", Key=f"d/{name}", Body=name.encode())
        assert sent.call("head_object", Key=f"d/{name}")["ContentLength"] == len(name.encode())
    page = sent.call("list_objects_v2", Prefix="d/")
    assert [each["Key"] for each in page["Contents"]] == sorted(f"d/{name}" for name in NAMES)
    assert not page.get("IsTruncated")
    for each in page["Contents"]:
        head = sent.call("head_object", Key=each["Key"])
        assert (each["Size"], each["ETag"]) == (head["ContentLength"], head["ETag"])
        assert abs(each["LastModified"] - head["LastModified"]) < datetime.timedelta(seconds=1)
    for name in [*NAMES, "none"]:
        sent.call("delete_object", Key=f"d/{name}")
    assert not sent.call("list_objects_v2", Prefix="d/").get("Contents")


def test_a_listing_has_pages_a_start_and_no_deeper_names(sent: Transport) -> None:
    for name in ("a", "b", "c", "c/deep", "d"):
        put(sent, f"d/{name}", b"")
    more: dict[str, Any] = {"Prefix": "d/", "Delimiter": "/", "StartAfter": "d/a", "MaxKeys": 2}
    first = sent.call("list_objects_v2", **more)
    assert [each["Key"] for each in first["Contents"]] == ["d/b", "d/c"] and first["IsTruncated"]
    keys, page = [], first
    while page.get("IsTruncated"):
        page = sent.call("list_objects_v2", **more, ContinuationToken=page["NextContinuationToken"])
        keys += [each["Key"] for each in page.get("Contents", ())]
    assert keys == ["d/d"]


@pytest.mark.parametrize("rule", [reset_before, reset_after, refused(503, "SlowDown")], ids=["before", "after", "slow"])
def test_a_put_without_an_answer_is_sent_once_and_left_open(seen: tuple[Proxy, Transport], rule: Any) -> None:
    proxy, sent = seen
    proxy.rule = rule
    assert put(sent, "k", b"1", IfNoneMatch="*") is PutOutcome.UNKNOWN
    assert [request.method for request in proxy.requests] == ["PUT"]


def test_a_put_that_has_no_effect_is_an_error(seen: tuple[Proxy, Transport], ministack: Server, way: Way) -> None:
    proxy, sent = seen
    proxy.rule = refused(403, "AccessDenied")
    with pytest.raises(Exception) as refusal:
        sent.put_once("k", b"1", {"IfNoneMatch": "*"}, 30)
    assert (status_of(refusal.value), code_of(refusal.value)) == (403, "AccessDenied")
    options = ministack.options(endpoint_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Exception, match=r"[Cc]onnect"):
        way(S3Store("s3://bucket", **options)).put_once("k", b"1", {"IfNoneMatch": "*"}, 30)


def test_what_may_be_repeated_is_after_a_transient_error(seen: tuple[Proxy, Transport]) -> None:
    proxy, sent = seen
    for send in (
        lambda: sent.call("put_object", Key="k", Body=b"1"),
        lambda: sent.call("head_object", Key="k"),
        lambda: sent.read("k"),
        lambda: sent.call("list_objects_v2", Prefix=""),
        lambda: sent.call("delete_object", Key="k"),
    ):
        proxy.rule = only_once(refused(500, "InternalError"), lambda request: True)
        proxy.requests.clear()
        send()
        assert len(proxy.requests) == 2


def test_both_say_where_requests_go(ministack: Server, way: Way) -> None:
    assert way(ministack.store("")).endpoint == ministack.options()["endpoint_url"]
