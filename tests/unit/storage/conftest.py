"""An S3 store whose requests are recorded."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.s3 import Proxy, Server, pass_on, proxied

if TYPE_CHECKING:
    from deltalog.storage.s3.store import S3Store  # imports s3fs, which other stores do not need


@pytest.fixture(scope="module")
def proxy_and_root(ministack: Server) -> Iterator[tuple[Proxy, S3Store]]:
    with proxied(ministack) as (proxy, server):
        root = server.store("", config_kwargs={"read_timeout": 3})
        root.put_if_absent("probed", b"")
        yield proxy, root


@pytest.fixture
def seen(proxy_and_root: tuple[Proxy, S3Store]) -> Iterator[tuple[Proxy, S3Store]]:
    """An empty store behind a proxy; its conditional writes have already been probed, so that a test records only its
    own requests."""
    proxy, root = proxy_and_root
    proxy.requests.clear()
    yield proxy, root.sibling(f"{root.url}/{uuid.uuid4()}/table")
    proxy.rule = pass_on
