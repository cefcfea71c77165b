"""Requests are sent without botocore only if no source of settings requires botocore."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.storage.s3.connections import Origin
from deltalog.storage.s3.credentials import ResolvedCredentials
from deltalog.storage.s3.settings import Settings, settings_of
from deltalog.storage.s3.signing import Credentials

KEYS = {"key": "KEY", "secret": "SECRET"}
ENDPOINT = "https://minio.example:9000"


def settings_by(options: dict[str, Any], environment: dict[str, str] | None = None, *files: str) -> Settings | None:
    return settings_of(options, environment or {}, lambda file: file in files, lambda name: None)


def with_profile(options: dict[str, Any], profile: dict[str, Any]) -> Settings | None:
    return settings_of(options, {}, lambda file: file == "~/.aws/config", lambda name: profile)


@pytest.mark.parametrize(
    "options",
    [
        KEYS,
        {**KEYS, "token": "TOKEN"},
        {"anon": True},
        {**KEYS, "endpoint_url": ENDPOINT},
        {**KEYS, "client_kwargs": {"endpoint_url": ENDPOINT, "region_name": "eu-central-1"}},
        {**KEYS, "config_kwargs": {"read_timeout": 20, "connect_timeout": 5, "retries": {"max_attempts": 5}}},
        {**KEYS, "config_kwargs": {"s3": {"addressing_style": "path"}}, "endpoint_url": ENDPOINT},
    ],
)
def test_common_options_need_no_botocore(options: dict[str, Any]) -> None:
    assert settings_by(options) is not None


@pytest.mark.parametrize(
    "options",
    [
        {"key": "KEY"},
        {"token": "TOKEN"},
        {"key": "KEY", "secret": "SEC\nRET"},
        {**KEYS, "profile": "p"},  # this machine has no such profile
        {**KEYS, "profile": 1},
        {**KEYS, "requester_pays": True},
        {**KEYS, "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms"}},
        {**KEYS, "use_ssl": False},
        {**KEYS, "client_kwargs": {"verify": "/ca.pem"}},
        {**KEYS, "client_kwargs": {"region_name": "us-iso-east-1"}},
        {**KEYS, "client_kwargs": {"region_name": "eu-west-1.evil.example/"}},
        {**KEYS, "config_kwargs": {"proxies": {"https": "http://proxy"}}},
        {**KEYS, "config_kwargs": {"s3": {"use_accelerate_endpoint": True}}},
        {**KEYS, "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {**KEYS, "config_kwargs": {"retries": {"mode": "adaptive"}}},
        {**KEYS, "config_kwargs": {"retries": 3}},
        {**KEYS, "config_kwargs": {"read_timeout": None}},
        {**KEYS, "config_kwargs": {"signature_version": "s3"}},
        {**KEYS, "endpoint_url": "https://s3.eu-west-1.amazonaws.com"},
        {**KEYS, "endpoint_url": "https://minio.example/prefix"},
        {**KEYS, "endpoint_url": "ftp://minio.example"},
        {**KEYS, "endpoint_url": "https://minio.example:port"},
    ],
)
def test_what_is_not_known_is_left_to_botocore(options: dict[str, Any]) -> None:
    assert settings_by(options) is None


@pytest.mark.parametrize(
    ("environment", "files", "direct"),
    [
        ({}, (), True),
        ({"AWS_DEFAULT_REGION": "eu-west-1", "AWS_EXECUTION_ENV": "AWS_Lambda_python3.12", "HOME": "/root"}, (), True),
        ({"AWS_ROLE_ARN": "arn:…", "NO_PROXY": "*"}, (), True),
        ({"AWS_XRAY_CONTEXT_MISSING": "LOG_ERROR", "AWS_LAMBDA_FUNCTION_NAME": "f"}, (), True),
        ({"AWS_METADATA_SERVICE_TIMEOUT": "5"}, (), True),
        ({"AWS_ENDPOINT_URL_S3": "http://h"}, (), False),
        ({"AWS_PROFILE": "p"}, (), False),
        ({"AWS_USE_FIPS_ENDPOINT": "true"}, (), False),
        ({"AWS_A_SETTING_OF_TOMORROW": "1"}, (), False),
        ({"https_proxy": "http://proxy"}, (), False),
        ({"https_proxy": ""}, (), True),
        ({"FSSPEC_S3_KEY": "k"}, (), False),
        ({}, ("~/.aws/config",), False),  # this file cannot be read here
        ({"AWS_CONFIG_FILE": "/f"}, (), False),
        ({}, ("~/.boto",), False),
        ({}, ("~/.config/fsspec",), False),
    ],
)
def test_settings_of_the_environment_are_not_passed_over(
    environment: dict[str, str], files: tuple[str, ...], direct: bool
) -> None:
    assert (settings_by(KEYS, environment, *files) is not None) == direct


@pytest.mark.parametrize(
    ("profile", "direct"),
    [
        ({}, True),
        ({"region": "eu-west-3", "output": "json", "cli_pager": ""}, True),
        ({"aws_access_key_id": "K", "aws_secret_access_key": "S", "aws_session_token": "T"}, True),
        ({"role_arn": "arn:…", "source_profile": "p", "duration_seconds": "900"}, True),
        ({"sso_session": "s", "sso_account_id": "1", "sso_role_name": "r"}, True),
        ({"region": "us-iso-east-1"}, False),
        ({"s3": {"addressing_style": "virtual"}}, False),
        ({"endpoint_url": "http://h"}, False),
        ({"services": "local"}, False),
        ({"use_fips_endpoint": "true"}, False),
        ({"ca_bundle": "/ca.pem"}, False),
        ({"retry_mode": "adaptive"}, False),
        ({"role_arn": "arn:…", "mfa_serial": "arn:…"}, False),  # this profile prompts the user
        ({"a_setting_of_tomorrow": "1"}, False),
    ],
)
def test_settings_of_a_profile_are_not_passed_over(profile: dict[str, Any], direct: bool) -> None:
    for options in ({}, KEYS, {"profile": "p"}):
        settings = with_profile(options, profile)
        assert (settings is not None) == direct
        assert settings is None or settings.region == profile.get("region", "us-east-1")
    given = {**KEYS, "client_kwargs": {"region_name": "eu-north-1"}}
    settings = with_profile(given, {**profile, "region": "eu-west-3"})
    assert settings is None or settings.region == "eu-north-1"


def test_credentials_of_options_go_before_those_of_the_environment() -> None:
    own = {"AWS_ACCESS_KEY_ID": "ENV", "AWS_SECRET_ACCESS_KEY": "ENVS", "AWS_SESSION_TOKEN": "ENVT"}
    settings, from_environment = settings_by(KEYS, own), settings_by({}, own)
    assert settings and settings.credentials == Credentials("KEY", "SECRET")
    assert from_environment and from_environment.credentials == Credentials("ENV", "ENVS", "ENVT")
    assert settings_by({}, {"AWS_ACCESS_KEY_ID": "ENV"}) is settings_by({}, {"AWS_SECRET_ACCESS_KEY": "ENVS"}) is None
    resolved = settings_by({}, {"AWS_SESSION_TOKEN": "", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "ENVT"})
    assert resolved and isinstance(resolved.credentials, ResolvedCredentials)
    unsigned = settings_by({"anon": True}, own)
    assert unsigned and unsigned.credentials is None
    assert not {"KEY", "SECRET", "ENVS", "ENVT"} & set(repr([settings, from_environment, resolved]).split("'"))


@pytest.mark.parametrize(
    ("options", "bucket", "place"),
    [
        (
            {"client_kwargs": {"region_name": "eu-west-1"}},
            "lake",
            (Origin("https", "lake.s3.eu-west-1.amazonaws.com", 443), ""),
        ),
        ({}, "lake", (Origin("https", "lake.s3.us-east-1.amazonaws.com", 443), "")),
        (
            {"client_kwargs": {"region_name": "cn-north-1"}},
            "lake",
            (Origin("https", "lake.s3.cn-north-1.amazonaws.com.cn", 443), ""),
        ),
        ({}, "a.b", (Origin("https", "s3.us-east-1.amazonaws.com", 443), "/a.b")),
        ({"endpoint_url": "http://h"}, "lake", (Origin("http", "h", 80), "/lake")),
        ({"endpoint_url": "http://[::1]:9000/"}, "lake", (Origin("http", "::1", 9000), "/lake")),
        ({}, "lake--use1-az4--x-s3", None),
        ({"endpoint_url": "http://h"}, "point-s3alias", None),
    ],
)
def test_a_bucket_has_its_place(options: dict[str, Any], bucket: str, place: Any) -> None:
    settings = settings_by({**KEYS, **options})
    assert settings is not None and settings.place(bucket) == place


def test_limits_are_those_of_the_options() -> None:
    retries = {"total_max_attempts": 1}
    settings = settings_by({**KEYS, "config_kwargs": {"read_timeout": 3, "connect_timeout": 2, "retries": retries}})
    assert settings and (settings.limits.read, settings.limits.connect, settings.attempts) == (3, 2, 1)
    assert settings.slow_attempts == 1
    settings = settings_by({**KEYS, "config_kwargs": {"retries": {"max_attempts": 0}}}, {"AWS_CA_BUNDLE": "/ca.pem"})
    assert settings and (settings.attempts, settings.ca_file) == (1, "/ca.pem")
