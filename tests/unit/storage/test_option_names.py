"""Storage options with object_store's names are translated to the options of s3fs, gcsfs and adlfs."""

from __future__ import annotations

import pytest

from deltalog import open_store
from deltalog.errors import CallError
from deltalog.storage.option_names import translated
from deltalog.storage.s3.settings import settings_of


@pytest.mark.parametrize("spell", [str.upper, str.lower, lambda name: name.lower().removeprefix("aws_")])
def test_s3_in_every_spelling(spell) -> None:
    given = {
        spell("AWS_ACCESS_KEY_ID"): "k",
        spell("AWS_SECRET_ACCESS_KEY"): "s",
        spell("AWS_SESSION_TOKEN"): "t",
        spell("AWS_REGION"): "eu-west-1",
        spell("AWS_ENDPOINT_URL"): "http://127.0.0.1:9000",
        spell("AWS_ALLOW_HTTP"): "true",
        spell("AWS_VIRTUAL_HOSTED_STYLE_REQUEST"): "false",
        spell("AWS_S3_ALLOW_UNSAFE_RENAME"): "true",
    }
    found = translated("s3://bucket/table", given)
    assert found == {
        "key": "k",
        "secret": "s",
        "token": "t",
        "client_kwargs": {"region_name": "eu-west-1"},
        "endpoint_url": "http://127.0.0.1:9000",
        "config_kwargs": {"s3": {"addressing_style": "path"}},
    }
    settings = settings_of(found, {}, lambda file: False, lambda name: None)
    assert settings is not None and settings.region == "eu-west-1"


def test_switches_and_commit_protocols() -> None:
    assert translated("s3a://b/t", {"AWS_SKIP_SIGNATURE": "true"}) == {"anon": True}
    assert translated("s3a://b/t", {"skip_signature": False}) == {"anon": False}
    locking = {"AWS_S3_LOCKING_PROVIDER": "dynamodb", "DELTA_DYNAMO_TABLE_NAME": "mine"}
    assert translated("s3://b/t", {"DELTA_DYNAMO_TABLE_NAME": "mine"}) == {}
    for options in (locking, dict(reversed(locking.items()))):
        assert translated("s3://b/t", options) == {"commit": "s3-dynamodb:mine"}
    assert translated("s3://b/t", {"aws_s3_locking_provider": "dynamodb"}) == {"commit": "s3-dynamodb:delta_log"}
    assert translated("s3://b/t", {"AWS_CONDITIONAL_PUT": "dynamo:locks"}) == {"commit": "dynamo:locks"}
    assert translated("s3://b/t", {"AWS_CONDITIONAL_PUT": "etag"}) == {}
    found = translated("s3://b/t", {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"})
    assert found == {"dynamodb_endpoint_url": "http://127.0.0.1:1"}


def test_options_of_s3fs_stay_and_join() -> None:
    options = {"key": "k", "client_kwargs": {"verify": False}, "AWS_REGION": "eu-west-1", "timeout": "30s"}
    found = translated("s3://b/t", options)
    assert found == {"key": "k", "client_kwargs": {"region_name": "eu-west-1", "verify": False}}
    assert options["client_kwargs"] == {"verify": False}
    with pytest.raises(CallError, match="given twice"):
        translated("s3://b/t", {"key": "one", "AWS_ACCESS_KEY_ID": "two"})


def test_google_and_azure() -> None:
    assert translated("gs://b/t", {"GOOGLE_SERVICE_ACCOUNT": "/f.json"}) == {"token": "/f.json"}
    azure = {"AZURE_STORAGE_ACCOUNT_NAME": "n", "azure_storage_account_key": "k", "sas_token": "s"}
    assert translated("az://c/t", azure) == {"account_name": "n", "account_key": "k", "sas_token": "s"}
    assert translated("abfss://c@n.dfs.core.windows.net/t", {"client_id": "i"}) == {"client_id": "i"}


def test_other_locations_need_none_of_them_but_typos_are_refused(tmp_path) -> None:
    options = {"AWS_ACCESS_KEY_ID": "k", "region": "x", "allow_http": "true", "AZURE_STORAGE_ACCOUNT_NAME": "n"}
    assert translated(str(tmp_path), options) == {}
    assert open_store(tmp_path, storage_options=options).url == str(tmp_path)
    assert translated(str(tmp_path), {"acess_key_id": "k"}) == {"acess_key_id": "k"}
    with pytest.raises(CallError, match="acess_key_id"):
        open_store(tmp_path, acess_key_id="k")


def test_obstore_keeps_its_own_names() -> None:
    options = {"driver": "obstore", "AWS_REGION": "eu-west-1"}
    assert translated("s3://b/t", options) == options


def test_secrets_are_in_no_message() -> None:
    with pytest.raises(CallError) as found:
        translated("s3://b/t", {"key": "secret-one", "AWS_ACCESS_KEY_ID": "secret-two"})
    assert "secret-" not in str(found.value)
