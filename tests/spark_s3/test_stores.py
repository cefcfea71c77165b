"""Conversion of storage options to S3A settings, and of S3A settings to storage options."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import deltalog
import spark_ext
from spark_ext.session.stores import Storage, deltalog_options, s3a_settings

_KEYS = {"key": "id-of-the-key", "secret": "a-secret", "endpoint_url": "http://127.0.0.1:9000"}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"anon": True}, {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"}),
        (
            {"key": "k", "secret": "s", "token": "t", "client_kwargs": {"region_name": "eu-central-1"}},
            {
                "access.key": "k",
                "secret.key": "s",
                "session.token": "t",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
                "endpoint.region": "eu-central-1",
            },
        ),
        (
            {**_KEYS, "commit": "dynamo:locks", "exclusive_create": True},
            {
                "access.key": "id-of-the-key",
                "secret.key": "a-secret",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
                "endpoint": "http://127.0.0.1:9000",
                "endpoint.region": "us-east-1",
                "connection.ssl.enabled": "false",
                "path.style.access": "true",
            },
        ),
        (
            {"profile": "lake", "requester_pays": True, "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
            {
                "auth.profile.name": "lake",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
                "path.style.access": "false",
                "requester.pays.enabled": "true",
            },
        ),
    ],
)
def test_options_become_settings_of_each_bucket(options: dict[str, Any], settings: dict[str, str]) -> None:
    expected = {f"fs.s3a.bucket.{bucket}.{name}": value for bucket in ("a", "b.c") for name, value in settings.items()}
    assert s3a_settings(options, ["a", "b.c"]) == expected


def test_settings_become_options_that_lead_to_the_same_place() -> None:
    options = {**_KEYS, "token": "t", "client_kwargs": {"region_name": "eu-west-1"}}
    plain = {name.removeprefix("fs.s3a.bucket.a."): value for name, value in s3a_settings(options, "a").items()}
    assert deltalog_options(plain) == {**options, "config_kwargs": {"s3": {"addressing_style": "path"}}}
    assert deltalog_options({"endpoint": "minio:9000"}) == {"endpoint_url": "https://minio:9000"}
    assert deltalog_options({"access.key": "k", "aws.credentials.provider": "x.AnonymousAWSCredentialsProvider"}) == {
        "anon": True
    }


def test_nothing_that_is_printed_has_a_secret(spark: Any) -> None:
    storage = Storage(True, _KEYS, s3a_settings(_KEYS, ["a"]))
    writer = spark_ext.write(spark.range(1)).storage_options(**_KEYS)
    assert "secret" not in repr(storage) + repr(vars(writer))
    assert pickle.loads(pickle.dumps(storage)) == storage


def test_options_that_lead_elsewhere_are_refused(spark: Any, tmp_path: Any) -> None:
    for name, value in (("driver", "obstore"), ("filesystem", object())):
        with pytest.raises(deltalog.CallError, match=name):
            spark_ext.read(spark).storage_options(**{name: value})
    with pytest.raises(deltalog.CallError, match="local path"):
        spark_ext.read(spark).storage_options(**_KEYS).load(str(tmp_path))
    deltalog.DeltaTable.create(str(tmp_path / "t"), spark_ext.from_spark(spark.range(1).schema))
    table = deltalog.DeltaTable.open(str(tmp_path / "t"))
    with pytest.raises(deltalog.CallError, match="storage_options can only be used with a path"):
        spark_ext.read(spark).storage_options(**_KEYS).load(table)
