"""Derives the settings of the direct transport from options, environment and profile.

If the options, the environment or the profile contain a setting that this module does not support, all requests go
through s3fs and botocore, which support every setting.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalog.storage.s3.connections import Limits, Origin
from deltalog.storage.s3.credentials import CredentialSource, ResolvedCredentials, is_word, profile_settings
from deltalog.storage.s3.signing import Credentials

_OPTIONS = {
    *("key", "secret", "token", "anon", "endpoint_url", "client_kwargs", "config_kwargs", "use_ssl", "profile"),
    "credentials",
}
_NO_EFFECT = {"max_concurrency", "default_block_size", "default_fill_cache", "default_cache_type", "fixed_upload_size"}
_CONFIG = {"read_timeout", "connect_timeout", "retries", "max_pool_connections", "signature_version", "s3"}
# Environment variables that may be set when this module sends requests: those that select credentials and region, and
# those that have no effect on requests to S3.
_ENVIRONMENT = re.compile(
    "AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|REGION|DEFAULT_REGION|CA_BUNDLE|ALLOW_HTTP|DEFAULT_OUTPUT|PAGER|"
    "EXECUTION_ENV|ROLE_.*|WEB_IDENTITY_TOKEN_FILE|CONTAINER_.*|EC2_METADATA_.*|METADATA_SERVICE_.*|LAMBDA_.*|XRAY_.*|"
    "BATCH_.*|STS_REGIONAL_ENDPOINTS|PROFILE|DEFAULT_PROFILE|CONFIG_FILE|SHARED_CREDENTIALS_FILE)"
)
_PROFILE_VARIABLES = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")
_PROFILE_FILES = ("~/.aws/config", "~/.aws/credentials")
_OTHER_FILES = ("~/.boto", "/etc/boto.cfg", "~/.config/fsspec")
# Settings of a profile that select credentials and region, or that do not affect requests to S3.
_PROFILE = re.compile(
    "aws_(access_key_id|secret_access_key|session_token|security_token|account_id)|region|output|cli_.*|role_arn|"
    "role_session_name|source_profile|credential_source|external_id|duration_seconds|web_identity_token_file|sso_.*|"
    "login_session|credential_process|sts_regional_endpoints|metadata_service_.*|ec2_metadata_.*"
)
_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_DEFAULT_REGION = "us-east-1"
_DNS_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
# Suffixes of bucket names for which requests need another signature or another host.
_OTHER_BUCKETS = ("--x-s3", "--op-s3", ".mrap", "--ol-s3", "-s3alias", "--table-s3")
# The maximum number of attempts, normally and if throttled. The waits between attempts give an overloaded service some
# ten seconds to recover.
ATTEMPTS, SLOW_ATTEMPTS = 5, 8


@dataclass(frozen=True)
class Settings:
    """Where requests are sent and how they are signed."""

    origin: Origin | None  # None: AWS, with one host per bucket
    region: str
    credentials: Credentials | CredentialSource | None = field(repr=False)  # None: unsigned
    limits: Limits
    attempts: int  # for a request that is safe to repeat
    slow_attempts: int  # number of attempts for a request that the service throttles
    ca_file: str | None

    @property
    def endpoint(self) -> str | None:
        """The URL of the server; None for AWS."""
        return None if self.origin is None else f"{self.origin.scheme}://{self.origin.address}"

    def place(self, bucket: str) -> tuple[Origin, str] | None:
        """The server and the path of a bucket; None if botocore must determine them."""
        if bucket.endswith(_OTHER_BUCKETS):
            return None
        if self.origin is not None:
            return self.origin, f"/{bucket}"
        host = f"s3.{self.region}.amazonaws.com{'.cn' if self.region.startswith('cn-') else ''}"
        if _DNS_BUCKET.fullmatch(bucket):
            return Origin("https", f"{bucket}.{host}", 443, self.ca_file), ""
        return Origin("https", host, 443, self.ca_file), f"/{bucket}"


def settings_of(
    options: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
    exists: Callable[[str], bool] | None = None,
    profile_of: Callable[[str | None], Mapping[str, Any] | None] = profile_settings,
) -> Settings | None:
    """The settings that correspond to the options of s3fs; None if requests must go through s3fs. ``exists``: returns
    whether a file exists; ``profile_of``: returns the settings of a profile."""
    client = dict(options.get("client_kwargs") or {})
    config = dict(options.get("config_kwargs") or {})
    endpoint = options.get("endpoint_url") or client.pop("endpoint_url", None)
    how = _limits_and_attempts(config)
    region = client.pop("region_name", None) or environment.get("AWS_DEFAULT_REGION")
    if (
        options.keys() - _OPTIONS - _NO_EFFECT
        or client
        or how is None
        or not options.get("use_ssl", True)
        or not _is_plain(environment, exists or _exists)
    ):
        return None
    profile = _profile(options, environment, exists or _exists, profile_of)
    if profile is None:
        return None
    region = region or profile.get("region") or _DEFAULT_REGION
    if not isinstance(region, str) or not _REGION.fullmatch(region) or region.startswith(("us-iso", "eu-iso")):
        return None
    ca_file = environment.get("AWS_CA_BUNDLE") or None
    origin = None if endpoint is None else _origin(endpoint, ca_file)
    found = _credentials(options, environment, region)
    if (endpoint is not None and origin is None) or found is None:
        return None
    return Settings(origin, region, found[0], *how, ca_file)


def _limits_and_attempts(config: Mapping[str, Any]) -> tuple[Limits, int, int] | None:
    """The time limits, the number of attempts, and the number of attempts for throttled requests, from the options of
    botocore's Config; None if one of the options is not supported here."""
    nested = (config.get("retries") or {}, config.get("s3") or {})
    if not all(isinstance(each, Mapping) for each in nested):
        return None
    retries, s3 = dict(nested[0]), dict(nested[1])
    known = not (config.keys() - _CONFIG or retries.keys() - {"max_attempts", "total_max_attempts"})
    known = known and s3 in ({}, {"addressing_style": "path"}) and config.get("signature_version") in (None, "s3v4")
    seconds = [config.get("connect_timeout", 60), config.get("read_timeout", 60)]
    attempts = retries.get("total_max_attempts", retries.get("max_attempts", ATTEMPTS - 1) + 1)
    if not known or not all(isinstance(each, (int, float)) and each > 0 for each in [*seconds, attempts]):
        return None
    return Limits(*seconds), max(int(attempts), 1), max(int(attempts), 1) if retries else SLOW_ATTEMPTS


def _is_plain(environment: Mapping[str, str], exists: Callable[[str], bool]) -> bool:
    """Whether this module supports all settings in environment variables and files."""
    names = {name for name, value in environment.items() if value}
    unknown = {name for name in names if name.startswith("AWS_") and not _ENVIRONMENT.fullmatch(name)}
    of_fsspec = {name for name in names if name.upper().startswith(("FSSPEC_", "S3FS_"))}
    proxies = {name for name in names if name.lower().endswith("_proxy") and name.lower() != "no_proxy"}
    return not (unknown or of_fsspec or proxies) and not any(exists(file) for file in _OTHER_FILES)


def _profile(
    options: Mapping[str, Any],
    environment: Mapping[str, str],
    exists: Callable[[str], bool],
    profile_of: Callable[[str | None], Mapping[str, Any] | None],
) -> Mapping[str, Any] | None:
    """The settings of the profile: empty if there is no profile, and None if one of the settings is not supported
    here."""
    name = options.get("profile")
    is_chosen = name is not None or any(environment.get(variable) for variable in _PROFILE_VARIABLES)
    if not is_chosen and not any(exists(file) for file in _PROFILE_FILES):
        return {}
    if not isinstance(name, (str, type(None))) or name == "":
        return None
    found = profile_of(name)
    return None if found is None or not all(_PROFILE.fullmatch(key) for key in found) else found


def _exists(file: str) -> bool:
    try:
        return Path(file).expanduser().exists()
    except (OSError, RuntimeError):
        return True


def _origin(endpoint: str, ca_file: str | None) -> Origin | None:
    try:
        parts = urllib.parse.urlsplit(endpoint)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    except ValueError:
        return None
    host = parts.hostname or ""
    # AWS endpoints may have other requirements, such as another signature.
    is_other = not re.fullmatch(r"[A-Za-z0-9.:_-]+", host) or "amazonaws" in host.lower()
    if is_other or not port or parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        return None
    return Origin(parts.scheme, host, port, ca_file if parts.scheme == "https" else None)


def _credentials(
    options: Mapping[str, Any], environment: Mapping[str, str], region: str
) -> tuple[Credentials | CredentialSource | None] | None:
    """A tuple with one item: None if requests must be sent unsigned, otherwise the credentials from the options, the
    environment or botocore's resolver. None if only s3fs can determine the credentials."""
    if isinstance(options.get("credentials"), CredentialSource):
        return (options["credentials"],)
    if options.get("anon"):
        return (None,)
    names = ("key", "secret", "token")
    if any(options.get(name) for name in names):
        given = [options.get(name) for name in names]
    elif options.get("profile"):
        return (ResolvedCredentials(region, options["profile"]),)
    else:
        variables = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        given = [environment.get(name) for name in variables]
        if not any(given):
            return (ResolvedCredentials(region),)
    key, secret, token = (each or "" for each in given)
    if not key or not secret or not all(is_word(each) for each in (key, secret, token)):
        return None
    return (Credentials(key, secret, token or None),)
