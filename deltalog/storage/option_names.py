"""Storage options under the names that object_store, and so deltalake and polars, give them. Pure.

``AWS_ACCESS_KEY_ID``, ``aws_access_key_id`` and ``access_key_id`` all name the same option. The names are translated to
the options of s3fs, gcsfs and adlfs, which ``open_store`` accepts; other names are left unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from deltalog.errors import CallError

_TRUE = frozenset({"1", "true", "yes", "y", "t", "on"})

# Option names without the prefix ``aws_``, each with the corresponding option of s3fs.
_S3 = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "endpoint_url": "endpoint_url",
    "endpoint": "endpoint_url",
    "endpoint_url_s3": "endpoint_url",
    "profile": "profile",
}
_S3_SWITCHES = {"skip_signature": "anon"}
# The names of object_store and delta-rs that have an effect here, for messages.
S3_NAMES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_PROFILE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_SKIP_SIGNATURE", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_S3_LOCKING_PROVIDER",
    "DELTA_DYNAMO_TABLE_NAME",
)  # fmt: skip
# Names of options that s3fs also has, with the same meaning.
_S3_OWN = frozenset({"endpoint_url", "token", "profile"})
_DYNAMO_TABLE = "delta_dynamo_table_name"
# Known names that have no effect here: conditional writes, connections over HTTP and retries are on by default.
_S3_WITHOUT_EFFECT = frozenset(
    {
        "allow_http", "conditional_put", "s3_allow_unsafe_rename", "copy_if_not_exists", "bucket", "bucket_name",
        "imdsv1_fallback", "unsigned_payload", "checksum_algorithm", "disable_tagging", "s3_locking_provider",
        "metadata_endpoint", "container_credentials_relative_uri", "default_region", "delta_dynamo_table_name",
        "dynamo_table_name",
    }
)  # fmt: skip
_OF_CLIENT = frozenset(
    {
        "allow_http", "allow_invalid_certificates", "connect_timeout", "timeout", "pool_idle_timeout",
        "pool_max_idle_per_host", "proxy_url", "user_agent", "http2_only", "http1_only", "max_retries",
        "retry_timeout", "backoff_config.init_backoff", "backoff_config.max_backoff", "backoff_config.base",
        "allow_unsafe_rename", "mount_allow_unsafe_rename", "copy_if_not_exists",
    }
)  # fmt: skip
_GCS = {
    "google_service_account": "token",
    "google_service_account_path": "token",
    "service_account": "token",
    "service_account_path": "token",
    "google_application_credentials": "token",
    "google_service_account_key": "token",
    "service_account_key": "token",
}
_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "access_key": "account_key",
    "master_key": "account_key",
    "sas_token": "sas_token",
    "sas_key": "sas_token",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "tenant_id": "tenant_id",
    "authority_id": "tenant_id",
    "connection_string": "connection_string",
}
_KNOWN = frozenset({*_OF_CLIENT, *_S3, *_S3_SWITCHES, "region"})
_PREFIXES = ("aws_", "azure_storage_", "azure_", "google_", "gcs_", "delta_dynamo_", "dynamo_")


def _short(name: str, *prefixes: str) -> str:
    lower = name.lower()
    return next((lower[len(each) :] for each in prefixes if lower.startswith(each)), lower)


def is_object_store_name(name: str) -> bool:
    """Whether object_store, or delta-rs, has an option of this name."""
    lower = name.lower()
    return lower in _KNOWN or lower.startswith(_PREFIXES)


def translated(url: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options for a location, under the option names of fsspec's file systems. Local paths and stores in memory
    need no options, so none are returned for them. Raises CallError for one option under two names with different
    values."""
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if "filesystem" in options or options.get("driver") == "obstore":
        return dict(options)
    if scheme in ("s3", "s3a"):
        return {**_commits(options), **_translated(options, _of_s3)}
    if scheme in ("gs", "gcs"):
        return _translated(options, _of_table(_GCS))
    if scheme in ("az", "azure", "abfs", "abfss", "adl"):
        return _translated(options, _of_azure)
    return {name: value for name, value in options.items() if not is_object_store_name(name)}


def of_dynamodb(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of requests to DynamoDB, under s3fs's names. Raises CallError as ``translated``."""
    return _translated(options, _of_s3)


def _translated(options: Mapping[str, Any], of: Callable[[str, Any, dict[str, Any]], bool]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        if not of(name, value, found):
            _put(found, name, value, name)
    return found


def _put(found: dict[str, Any], option: str, value: Any, name: str) -> None:
    """Set an option. Options that are mappings, such as client_kwargs, are merged. Raises CallError, which shows no
    value."""
    if isinstance(value, Mapping):
        value = {**value, **found.pop(option, {})}
    if option in found and found[option] != value:
        raise CallError(f"The storage option {name} is given twice, under two names. Leave one out.")
    found[option] = value


def _commits(options: Mapping[str, Any]) -> dict[str, Any]:
    """The option ``commit`` that corresponds to delta-rs's options for safe commits: its DynamoDB locking provider
    corresponds to Spark's S3DynamoDBLogStore, and conditional puts by ``dynamo:…`` use a lock table in DynamoDB."""
    given = {_short(name, "aws_"): str(value) for name, value in options.items()}
    if given.get("s3_locking_provider", "").lower() == "dynamodb":
        return {"commit": f"s3-dynamodb:{given.get(_DYNAMO_TABLE, given.get('dynamo_table_name', 'delta_log'))}"}
    conditional = given.get("conditional_put", "")
    return {"commit": conditional} if conditional.startswith("dynamo:") else {}


def _is_true(value: Any) -> bool:
    return value if isinstance(value, bool) else str(value).lower() in _TRUE


def _of_s3(name: str, value: Any, found: dict[str, Any]) -> bool:
    lower, short = name.lower(), _short(name, "aws_")
    if name in _S3_OWN:  # s3fs has the name, too
        return False
    if short in _S3:
        _put(found, _S3[short], value, name)
    elif short in _S3_SWITCHES:
        _put(found, _S3_SWITCHES[short], _is_true(value), name)
    elif short == "region" or lower == "aws_default_region":
        _put(found, "client_kwargs", {"region_name": value}, name)
    elif short == "virtual_hosted_style_request":
        style = "virtual" if _is_true(value) else "path"
        _put(found, "config_kwargs", {"s3": {"addressing_style": style}}, name)
    elif short == "endpoint_url_dynamodb":
        _put(found, "dynamodb_endpoint_url", value, name)
    elif short not in _S3_WITHOUT_EFFECT and lower not in _OF_CLIENT:
        return False
    return True


def _of_table(names: Mapping[str, str]) -> Callable[[str, Any, dict[str, Any]], bool]:
    def of(name: str, value: Any, found: dict[str, Any]) -> bool:
        lower = name.lower()
        if lower in names:
            _put(found, names[lower], value, name)
            return True
        return lower in _OF_CLIENT

    return of


def _of_azure(name: str, value: Any, found: dict[str, Any]) -> bool:
    short = _short(name, "azure_storage_", "azure_")
    if short in _AZURE:
        _put(found, _AZURE[short], value, name)
        return True
    return name.lower() in _OF_CLIENT
