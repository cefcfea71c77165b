"""Role credentials that botocore gets from real credential endpoints, and a service that checks these credentials."""

from __future__ import annotations

import datetime
import itertools
import json
import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs

from deltalog import StoreError
from deltalog.storage.base import PutOutcome
from deltalog.storage.s3 import botocore_transport, credentials
from deltalog.storage.s3.store import S3Store
from tests.support.s3 import Answer, Proxy, Request, Server, pass_on, proxied
from tests.support.s3.rules import carried_out_but_answered, error_document, only_once, refused, reset_after

Forward = Callable[[], Answer]

_NUMBERS = itertools.count()
COMMIT = "_delta_log/00000000000000000000.json"


class Roles:
    """Serves a role's credentials over HTTP, in the way in which a container or an EC2 instance (IMDSv2) obtains
    them."""

    def __init__(self, http: Proxy) -> None:
        self.number = 1
        self.lifetime_s = 3600.0
        self.error: Answer | None = None
        self.http = http
        http.rule = self._answer
        http.requests.clear()

    @property
    def words(self) -> tuple[str, str, str]:
        return f"ROLEKEY{self.number}", f"role-secret-{self.number}", f"role-token-{self.number}"

    def _answer(self, request: Request, forward: Forward) -> Answer:
        if request.method == "PUT":
            return 200, [], b"imds-token"
        if self.error is not None:
            return self.error
        if request.target.startswith("/latest/") and request.headers.get("x-aws-ec2-metadata-token") != "imds-token":
            return 401, [], b""
        if request.target == "/latest/meta-data/iam/security-credentials/":
            return 200, [], b"the-role"
        key, secret, token = self.words
        ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self.lifetime_s)
        found = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": token, "Code": "Success"}
        return 200, [], json.dumps({**found, "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()

    def check(self, request: Request, forward: Forward) -> Answer:
        """The object service, which accepts only the latest credentials."""
        key, _, token = self.words
        given = {name.lower(): value for name, value in request.headers.items()}
        is_valid = f"Credential={key}/" in given.get("authorization", "") and given["x-amz-security-token"] == token
        return forward() if is_valid else error_document(400, "ExpiredToken")


def start(roles: Roles, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:{roles.http.port}"
    if kind == "container":
        # Clients in one process share the credentials that were found for the same environment variables, but tests
        # must not share credentials with each other.
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{address}/role-{next(_NUMBERS)}")
    else:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")


@pytest.fixture(scope="module")
def services(ministack: Server) -> Iterator[tuple[Proxy, Proxy, Server, str]]:
    """The credential endpoint, the object service, the service's address and a bucket."""
    roles = Proxy(None)
    with proxied(ministack) as (proxy, server):
        yield roles, proxy, server, ministack.bucket()
    roles.close()


@pytest.fixture
def roles(
    services: tuple[Proxy, Proxy, Server, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Roles]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield Roles(services[0])
    botocore_transport._session.cache_clear()  # clear the cached results of s3fs's search for credentials
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def seen(services: tuple[Proxy, Proxy, Server, str], roles: Roles) -> tuple[Proxy, S3Store]:
    _, proxy, server, bucket = services
    options = {name: value for name, value in server.options().items() if name not in ("key", "secret")}
    store = S3Store(f"s3://{bucket}/table {next(_NUMBERS)}", exclusive_create=True, **options)
    proxy.requests.clear()
    proxy.rule = roles.check
    return proxy, store


def by_whom(proxy: Proxy) -> set[str]:
    return {request.headers["User-Agent"].partition("/")[0] for request in proxy.requests}


def puts(proxy: Proxy) -> list[Request]:
    return [request for request in proxy.requests if request.method == "PUT"]


@pytest.mark.parametrize("kind", ["container", "instance"])
def test_credentials_of_a_role_need_no_client_of_botocore(
    seen: tuple[Proxy, S3Store], roles: Roles, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, kind, monkeypatch)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED
    asked = len(roles.http.requests)
    assert store.get(COMMIT) == b"1" and store.head(COMMIT) is not None
    assert [meta.name for meta in store.list_from("_delta_log")] == [COMMIT.rpartition("/")[2]]
    assert S3Store(store.url, **store._client._options).get(COMMIT) == b"1"  # another client of this process
    assert by_whom(proxy) == {"deltalog"} and len(roles.http.requests) == asked
    assert "role-" not in repr([store, store._client._settings, vars(store._client._settings)])


@pytest.mark.parametrize("call", ["get", "get_many", "head", "list_from", "put", "delete", "put_if_absent"])
def test_credentials_that_are_no_longer_valid_are_replaced(
    seen: tuple[Proxy, S3Store], roles: Roles, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    store.put("a", b"1")
    roles.number = 2
    proxy.requests.clear()
    arguments: dict[str, tuple[Any, ...]] = {
        "get_many": (["a"] * 5,),
        "list_from": ("",),
        "put_if_absent": ("new", b"n"),
        "put": ("a", b"1"),
    }
    result = getattr(store, call)(*arguments.get(call, ("a",)))
    assert call != "put_if_absent" or (result is PutOutcome.COMMITTED and len(proxy.requests) == 2)
    assert call != "get_many" or result == [b"1"] * 5
    # The result is the same for any number of threads.
    assert by_whom(proxy) == {"deltalog"} and len(roles.http.requests) == 2


def test_botocore_refreshes_before_they_expire(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    roles.lifetime_s = 60  # so short that botocore refreshes the credentials at the next request
    store.put("a", b"1")
    roles.number, roles.lifetime_s = 2, 3600
    proxy.requests.clear()
    assert store.get("a") == b"1" and len(proxy.requests) == 1


@pytest.mark.parametrize("chosen", ["default", "variable", "option"])
def test_a_profile_with_credentials_needs_no_client_of_botocore(
    seen: tuple[Proxy, S3Store], roles: Roles, chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy, store = seen
    options = {name: value for name, value in store._client._options.items() if name != "client_kwargs"}
    name = "default" if chosen == "default" else "lake"
    if chosen == "variable":
        monkeypatch.setenv("AWS_PROFILE", name)
    if chosen == "option":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "not-this")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-this-one")
        options["profile"] = name
    (tmp_path / ".aws").mkdir()
    section = "default" if chosen == "default" else f"profile {name}"
    (tmp_path / ".aws" / "config").write_text(f"[{section}]\nregion = us-east-1\n[profile other]\nretry_mode = x\n")

    def write() -> None:
        key, secret, token = roles.words
        lines = [f"aws_access_key_id = {key}", f"aws_secret_access_key = {secret}", f"aws_session_token = {token}"]
        (tmp_path / ".aws" / "credentials").write_text("\n".join([f"[{name}]", *lines]))

    write()
    store = S3Store(store.url, exclusive_create=True, **options)
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED
    roles.number = 2
    write()  # a new credentials file, like one from a command that renews credentials
    assert store.get(COMMIT) == b"1" and by_whom(proxy) == {"deltalog"}
    (tmp_path / ".aws" / "config").write_text(f"[{section}]\nregion = eu-west-3\n")
    elsewhere = S3Store(store.url, **options)._client._settings
    assert elsewhere is not None and elsewhere.region == "eu-west-3"


@pytest.mark.parametrize("line", ["use_dualstack_endpoint = true", "s3 =\n  payload_signing_enabled = true"])
def test_other_settings_of_a_profile_are_left_to_s3fs(
    seen: tuple[Proxy, S3Store], roles: Roles, line: str, tmp_path: Path
) -> None:
    _, store = seen
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text(f"[default]\nregion = eu-west-3\n{line}\n")
    assert S3Store(store.url, **store._client._options)._client._settings is None


def test_a_profile_that_is_not_there_is_the_error_of_s3fs(seen: tuple[Proxy, S3Store], roles: Roles) -> None:
    proxy, store = seen
    with pytest.raises(StoreError, match="missing"):
        S3Store(store.url, **store._client._options, profile="missing").get("a")
    assert proxy.requests == []


def test_refused_again_is_an_error_and_not_a_loop(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    proxy.rule = refused(403, "InvalidAccessKeyId")
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"1"), lambda: store.head("a")):
        with pytest.raises(StoreError, match=r"HTTP 403"):
            call()
    # Within a minute, credentials are renewed once for errors that name the cause, and once for errors that do not.
    assert len(proxy.requests) == 3 and len(roles.http.requests) == 3
    proxy.rule = refused(403, "AccessDenied")
    roles.number, proxy.requests[:] = 2, []
    with pytest.raises(StoreError, match="AccessDenied"):
        store.get("a")
    assert len(proxy.requests) == 1 and len(roles.http.requests) == 3


def test_objects_that_may_not_be_seen_delay_no_renewal(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    store.put("a", b"1")
    proxy.rule = lambda request, forward: (403, [], b"")
    with pytest.raises(StoreError, match="403"):
        store.head("no rights to see it")
    roles.number, proxy.rule = 2, roles.check
    assert store.put_if_absent(COMMIT, b"2") is PutOutcome.COMMITTED and store.get("a") == b"1"


@pytest.mark.parametrize(
    ("second", "outcome"),
    [(reset_after, PutOutcome.UNKNOWN), (carried_out_but_answered(503, "SlowDown"), PutOutcome.UNKNOWN)],
)
def test_a_commit_is_sent_again_only_after_a_refusal(
    seen: tuple[Proxy, S3Store], roles: Roles, second: Any, outcome: PutOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost answer to the second PUT leaves the outcome unknown, as with the first."""
    proxy, store = seen
    start(roles, "container", monkeypatch)
    store.put("a", b"1")
    roles.number = 2
    proxy.requests.clear()
    final = only_once(second, lambda request: True)
    proxy.rule = lambda request, forward: roles.check(request, lambda: final(request, forward))
    assert store.put_if_absent(COMMIT, b"2") is outcome
    conditions = [{k.lower(): v for k, v in request.headers.items()}["if-none-match"] for request in puts(proxy)]
    assert conditions == ["*", "*"]
    assert store.put_if_absent(COMMIT, b"3") is PutOutcome.EXISTS and store.get(COMMIT) == b"2"


def test_a_refused_commit_that_was_carried_out_nevertheless_is_found(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    store.put("a", b"1")
    roles.number = 2
    proxy.rule = only_once(carried_out_but_answered(400, "ExpiredToken"), lambda request: True)
    # The failed PUT had taken effect, so the retry finds the object; the commit loop determines which writer made the
    # commit.
    assert store.put_if_absent(COMMIT, b"2") is PutOutcome.EXISTS
    assert store.get(COMMIT) == b"2"


def test_the_search_for_credentials_counts_in_the_time_limit_of_a_put(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    waited = threading.Event()
    give = roles.http.rule

    def late(request: Request, forward: Forward) -> Answer:
        waited.wait(0.3)
        return give(request, forward)

    roles.http.rule = late
    with pytest.raises(StoreError, match="time limit passed"):
        store.put_once("a", b"1", None, 0.2)
    assert proxy.requests == []


def test_where_there_are_none_the_error_is_that_of_s3fs(seen: tuple[Proxy, S3Store], roles: Roles) -> None:
    proxy, store = seen
    for call in (lambda: store.get("a"), lambda: store.put_if_absent(COMMIT, b"1")):
        with pytest.raises(StoreError, match="Unable to locate credentials"):
            call()
    assert proxy.requests == []


def test_a_service_of_credentials_that_fails_is_asked_again(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    monkeypatch.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    roles.error = 400, [], b"no"
    with pytest.raises(StoreError, match="metadata"):
        store.put_if_absent(COMMIT, b"1")
    assert proxy.requests == []
    roles.error = None
    assert store.put_if_absent(COMMIT, b"1") is PutOutcome.COMMITTED and by_whom(proxy) == {"deltalog"}


def test_errors_show_nothing_of_credentials(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    caplog.set_level(logging.DEBUG, "deltalog")

    def echo(request: Request, forward: Forward) -> Answer:
        words = " ".join([*roles.words, request.headers["X-Amz-Security-Token"]])
        return 403, [], f"<Error><Code>InvalidToken</Code><Message>Not valid: {words}</Message></Error>".encode()

    proxy.rule = echo
    shown = []
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"1"), lambda: store.put("a", b"1")):
        with pytest.raises(StoreError, match="InvalidToken: Not valid") as raised:
            call()
        shown += [str(raised.value), repr(raised.value.__cause__)]
    assert not any(word in text for word in roles.words for text in [*shown, caplog.text])


def test_words_that_cannot_stand_in_a_header_are_left_to_s3fs(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    monkeypatch.setattr(Roles, "words", ("ROLEKEY", "role-secret", "role-token\r\nx-amz-acl: public-read"))
    with pytest.raises(StoreError) as raised:
        store.put("a", b"1")
    assert "role-secret" not in str(raised.value) and proxy.requests == []


def test_threads_look_for_them_once(seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, store = seen
    start(roles, "container", monkeypatch)
    proxy.rule = pass_on
    threads = [threading.Thread(target=store.head, args=(f"{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(proxy.requests), len(roles.http.requests)) == (8, 1)


def test_a_forked_child_looks_for_its_own(
    seen: tuple[Proxy, S3Store], roles: Roles, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store = seen
    start(roles, "container", monkeypatch)
    store.put("a", b"1")
    found = credentials._shared.cache_info().currsize
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    locks = store._client._settings.credentials._here()._lock  # type: ignore[union-attr]
    with locks:  # simulates another thread that is already refreshing the credentials
        process = context.Process(target=lambda: answers.put(store.get("a")))
        process.start()
        assert answers.get(timeout=60) == b"1"
    process.join(30)
    assert len(roles.http.requests) == 2 and credentials._shared.cache_info().currsize == found
