"""Messages never repeat the values of storage options, neither whole values nor parts of them."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.storage.secrets import Secrets

SECRET = "aSentinel+of/base64=="
CONNECTION = f"DefaultEndpointsProtocol=https;AccountName=lake;AccountKey={SECRET};BlobEndpoint=http://127.0.0.1:1/lake"


@pytest.mark.parametrize(
    "options",
    [
        {"secret": SECRET},
        {"credential": {"nested": {"token": SECRET}}},
        {"connection_string": CONNECTION},
        {"url": f"https://lake.example/container?sv=1&sig={SECRET}"},
        {"sas_key": f"sv=1&sig={SECRET}"},
        {"headers": [("X-Auth", SECRET)]},
        {"secret": SECRET.encode()},
        {"endpoint_url": f"http://me:{SECRET.replace('/', '')}@127.0.0.1"},
    ],
)
def test_a_secret_is_told_neither_with_its_option_nor_alone(options: dict[str, Any]) -> None:
    secrets = Secrets(options)
    for text in (f"refused: {options}", f"the key {SECRET.replace('/', '') if 'endpoint_url' in options else SECRET}"):
        assert "aSentinel" not in secrets.without(text)


@pytest.mark.parametrize("options", [{"endpoint_url": "http://127.0.0.1:9000"}, {"region_name": "eu-central-1"}])
def test_where_a_service_is_may_be_told(options: dict[str, Any]) -> None:
    [text] = options.values()
    assert Secrets(options).without(f"no answer from {text}") == f"no answer from {text}"


def test_of_a_connection_string_the_account_may_be_told() -> None:
    assert Secrets({"connection_string": CONNECTION}).without("no container in lake") == "no container in lake"
