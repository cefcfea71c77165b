"""Sends requests to one DynamoDB table through boto3, and interprets the responses.

boto3's own retries are disabled. This module retries requests itself, because it must know how earlier attempts ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalog.arguments import safe_repr
from deltalog.errors import CallError, CommitTableError, StoreError, UnansweredRequestError
from deltalog.storage.client_logs import keep_out_of_client_logs
from deltalog.storage.progress import Pages
from deltalog.storage.secrets import (
    Secrets,
    check_credentials,
    check_dictionaries,
    check_endpoint,
)

Item = dict[str, str | int]
"""The attributes of an item: strings (S) and integers (N), the only types that the commit protocols use."""

REQUEST_SECONDS = 5
_TABLE_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_SHARED_CONFIG = ("proxies", "proxies_config", "user_agent_extra", "tcp_keepalive")
_BASE_SECONDS, _MAX_SECONDS = 0.05, 2.0
OPTIONS = frozenset(
    {"key", "secret", "token", "username", "password", "profile", "endpoint_url", "use_ssl"}
    | {"client_kwargs", "config_kwargs"}
)
_CONNECTING = threading.Lock()
_REFUSED_FOR_NOW = {
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "Throttling",
    "RequestLimitExceeded",
    "TransactionConflictException",
    "TransactionInProgressException",
}
# Reasons for which a transaction was refused but can be sent again later; "None" marks an item that did not cause the
# cancellation.
_REFUSED_FOR_NOW_REASONS = {"None", "TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"}
_MULTI_TABLE_OPERATIONS = {"transact_write_items", "transact_get_items", "batch_get_item", "batch_write_item"}


@dataclass(frozen=True, slots=True)
class Timing:
    """Clocks in seconds, a sleep function and a source of jitter; tests replace them. The durations of leases are
    measured only with ``monotonic``; ``wall`` determines when DynamoDB may delete an item."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    random: Callable[[], float] = random.random

    def back_off(self, number: int, at_most: float) -> None:
        """Wait before attempt ``number`` (from 1): exponential back-off with full jitter."""
        limit = min(_MAX_SECONDS, _BASE_SECONDS * 2 ** min(number, 20))
        self.sleep(max(0.0, min(self.random() * limit, at_most)))


class ConditionFailed(Exception):
    """The condition of a request was not met. ``item`` is the existing item; None if there was no item."""

    def __init__(self, item: Item | None) -> None:
        super().__init__("the condition did not hold")
        self.item = item


class ConditionsFailed(Exception):
    """The conditions of a TransactWriteItems request were not satisfied, and nothing was written.

    ``found`` maps the index of each failed action that requested the existing item to that item, in DynamoDB's
    encoding; an empty item means that none existed. ``unsettled``: whether an earlier attempt of the same request got
    no response; if that attempt took effect, that may be why the conditions fail."""

    def __init__(self, found: Mapping[int, Mapping[str, Any]], unsettled: bool) -> None:
        super().__init__("conditions did not hold")
        self.found = found
        self.unsettled = unsettled


class DynamoTable:
    """A DynamoDB table, accessed with the options of the S3 store.

    Only ``OPTIONS`` are used, with the same meaning as in s3fs; the argument ``endpoint_url`` overrides the option.
    Raises CallError for an invalid table name and if boto3 is not installed. Cost: no request.
    """

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        *,
        endpoint_url: str | None = None,
        timing: Timing | None = None,
    ) -> None:
        check_table_name(name)
        check_dictionaries(options)
        check_credentials(options)
        check_endpoint(endpoint_url, "dynamodb_endpoint_url")
        try:
            import boto3  # noqa: F401
        except ModuleNotFoundError as error:
            raise CallError(
                f"DynamoDB needs the extra 'dynamodb' ({error}): pip install 'deltalog[dynamodb]'."
            ) from error
        self.name = name
        self.timing = timing or Timing()
        self.secrets = Secrets(options)
        self._options = options
        self._endpoint_url = endpoint_url
        self._client: tuple[int, Any] | None = None

    @safe_repr
    def __repr__(self) -> str:
        return f"DynamoTable({self.name!r})"

    def put(
        self,
        item: Item,
        condition: str,
        *,
        names: Mapping[str, str] | None = None,
        values: Item | None = None,
        seconds: float | None = None,
    ) -> None:
        """Put an item if a condition holds. Raises ConditionFailed, even if an earlier attempt of the same request put
        the item, and StoreError as ``ask``. Cost: 1 request, more while the service throttles."""
        self.ask(
            "put_item",
            seconds,
            Item=_encoded(item),
            ConditionExpression=condition,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **({"ExpressionAttributeNames": dict(names)} if names else {}),
            **({"ExpressionAttributeValues": _encoded(values)} if values else {}),
        )

    def get(self, key: Item) -> Item | None:
        """The current item, or None. Cost: 1 consistent read."""
        answer = self.ask("get_item", Key=_encoded(key), ConsistentRead=True)
        return _decoded(answer["Item"]) if answer.get("Item") else None

    def delete(self, key: Item, condition: str, *, names: Mapping[str, str], values: Item) -> None:
        """Delete an item if a condition is true. Raises ConditionFailed, StoreError. Cost: 1 request."""
        self.ask(
            "delete_item",
            Key=_encoded(key),
            ConditionExpression=condition,
            ExpressionAttributeNames=dict(names),
            ExpressionAttributeValues=_encoded(values),
        )

    def descending(self, hash_key: str, value: str) -> Iterator[Item]:
        """The current items with a hash key, in descending order of the range key. Cost: 1 consistent read each."""
        arguments: dict[str, Any] = {}
        pages = Pages(f"the DynamoDB table {self.name!r}")
        while True:
            page = self.ask(
                "query",
                KeyConditionExpression="#key = :value",
                ExpressionAttributeNames={"#key": hash_key},
                ExpressionAttributeValues=_encoded({":value": value}),
                ScanIndexForward=False,
                ConsistentRead=True,
                Limit=1,
                **arguments,
            )
            yield from map(_decoded, page["Items"])
            if not page.get("LastEvaluatedKey"):
                return
            arguments["ExclusiveStartKey"] = self.following(pages, page)

    def following(self, pages: Pages, page: Mapping[str, Any]) -> Mapping[str, Any]:
        """The start key of the page after ``page``. Raises StoreError if the query makes no progress."""
        start: Mapping[str, Any] = page["LastEvaluatedKey"]
        try:
            pages.following(repr(sorted(start.items())), [repr(each) for each in page.get("Items", ())])
        except ValueError as error:
            raise StoreError(f"Cannot query {error}. Check the endpoint: it is not DynamoDB.", path=self.name) from None
        return start

    def ask(self, operation: str, seconds: float | None = None, **arguments: Any) -> Mapping[str, Any]:
        """Send a request, with retries and back-off for ``seconds`` while the service throttles or does not respond.

        Raises ConditionFailed, ConditionsFailed; CommitTableError if the table does not exist; StoreError;
        UnansweredRequestError if an attempt without a response may have taken effect.
        """
        timing = self.timing
        deadline = timing.monotonic() + (REQUEST_SECONDS if seconds is None else seconds)
        if operation not in _MULTI_TABLE_OPERATIONS:
            arguments["TableName"] = self.name
        unsettled, number = False, 0
        while True:
            try:
                answer: Mapping[str, Any] = getattr(self._connect(), operation)(**arguments)
                return answer
            except Exception as error:
                code = error_code(error)
                if code == "ConditionalCheckFailedException":
                    item = _answer(error).get("Item")
                    raise ConditionFailed(_decoded(item) if item else None) from None
                reasons = _answer(error).get("CancellationReasons") or []
                failed = [n for n, reason in enumerate(reasons) if reason.get("Code") == "ConditionalCheckFailed"]
                if failed:
                    raise ConditionsFailed({n: reasons[n].get("Item") or {} for n in failed}, unsettled) from None
                refused_for_now = code in _REFUSED_FOR_NOW or _is_refused_for_now(reasons)
                unanswered = _is_unanswered(error)
                unsettled = unsettled or unanswered
                left = deadline - timing.monotonic()
                if not (refused_for_now or unanswered) or left <= 0:
                    raise self._failure(operation, code, error, unsettled) from self.secrets.cause(error)
            number += 1
            timing.back_off(number, left)

    def _failure(self, operation: str, code: str, error: Exception, unsettled: bool) -> StoreError:
        reason = self.secrets.reason(error)
        if unsettled:
            return UnansweredRequestError(self._failed(operation, reason), path=self.name, service_code=code)
        if code == "ResourceNotFoundException":
            return CommitTableError(
                f"There is no DynamoDB table {self.name!r} ({reason}). Nothing was committed. Check its name and "
                "region, or create it: deltalog commit-table create.",
                table=self.name,
                service_code=code,
            )
        if code == "ValidationException":
            return CommitTableError(
                f"DynamoDB rejects the requests of a commit to the table {self.name!r}: {reason} Nothing was "
                "committed. Use a separate table for each commit protocol, created by deltalog commit-table create.",
                table=self.name,
                service_code=code,
            )
        return StoreError(self._failed(operation, reason), path=self.name, service_code=code)

    def _failed(self, operation: str, reason: str) -> str:
        return (
            f"{operation} on the DynamoDB table {self.name!r} failed: {reason} Check its capacity, the credentials, "
            "the region and the endpoint."
        )

    def _connect(self) -> Any:
        """The client, recreated after a fork. Clients are thread-safe, but their creation is not."""
        client = self._client
        if client is None or client[0] != os.getpid():
            with _CONNECTING:
                client = (os.getpid(), _new_client(self._options, self._endpoint_url))
            self._client = client
        return client[1]


def check_table_name(name: str) -> None:
    """Raises CallError for a name that DynamoDB does not accept."""
    if not _TABLE_NAME.fullmatch(name):
        raise CallError(f"{name!r} is not a DynamoDB table name: 3 to 255 of A-Z, a-z, 0-9, '_', '-' and '.'.")


def error_code(error: Exception) -> str:
    """The error code of a DynamoDB response, or an empty string."""
    return str(_answer(error).get("Error", {}).get("Code", ""))


def _answer(error: Exception) -> Mapping[str, Any]:
    """The response that is attached to an error; an empty mapping if there is none. In some errors, the attribute
    ``response`` is None."""
    response = getattr(error, "response", None)
    return response if isinstance(response, Mapping) else {}


def _is_refused_for_now(reasons: Sequence[Mapping[str, Any]]) -> bool:
    return bool(reasons) and all(reason.get("Code", "None") in _REFUSED_FOR_NOW_REASONS for reason in reasons)


def _is_unanswered(error: Exception) -> bool:
    """Whether the request may have taken effect, because no response arrived or the service failed while processing the
    request."""
    import botocore.exceptions as boto

    if type(error) is boto.HTTPClientError and isinstance(
        getattr(error, "kwargs", {}).get("error"), (ValueError, TypeError)
    ):
        return False  # the request could not be built, for example because of a line break in a header
    if isinstance(error, boto.ClientError):
        return int(_answer(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500
    return isinstance(error, (boto.HTTPClientError, boto.ConnectionError))


@functools.lru_cache(maxsize=16)
def _session(profile: str | None, process: int) -> Any:
    """The session is cached, because a new session takes a fifth of a second to read the AWS service definitions from
    disk."""
    import boto3

    return boto3.session.Session(profile_name=profile)


def _new_client(options: Mapping[str, Any], endpoint_url: str | None) -> Any:
    import botocore.config

    keep_out_of_client_logs()
    kwargs = dict(options.get("client_kwargs") or {})
    given = dict(options.get("config_kwargs") or {})
    config = {name: given[name] for name in _SHARED_CONFIG if name in given}
    return _session(options.get("profile"), os.getpid()).client(
        "dynamodb",
        region_name=kwargs.get("region_name"),
        endpoint_url=endpoint_url or options.get("endpoint_url") or kwargs.get("endpoint_url"),
        aws_access_key_id=options.get("key") or options.get("username") or kwargs.get("aws_access_key_id"),
        aws_secret_access_key=options.get("secret") or options.get("password") or kwargs.get("aws_secret_access_key"),
        aws_session_token=options.get("token") or kwargs.get("aws_session_token"),
        use_ssl=bool(options.get("use_ssl", True)),
        verify=kwargs.get("verify"),
        config=botocore.config.Config(
            connect_timeout=REQUEST_SECONDS,
            read_timeout=REQUEST_SECONDS,
            max_pool_connections=32,
            retries={"total_max_attempts": 1},
            **config,
        ),
    )


def _encoded(item: Item) -> dict[str, dict[str, str]]:
    return {name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in item.items()}


def _decoded(item: Mapping[str, Mapping[str, Any]]) -> Item:
    """The decoded attributes of the types S and N. Attributes of types other than S and N, which other writers may add,
    are left out."""
    decoded: Item = {}
    for name, value in item.items():
        if "S" in value:
            decoded[name] = str(value["S"])
        elif "N" in value:
            with contextlib.suppress(ValueError):
                decoded[name] = int(value["N"])
    return decoded
