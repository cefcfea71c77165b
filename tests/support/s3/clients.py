"""The same place on S3, through other clients."""

from __future__ import annotations

from deltalog.storage.s3.store import S3Store


def through_botocore(store: S3Store) -> S3Store:
    """With an option that changes nothing, and that only botocore can send."""
    return S3Store(store.url, **store._client._options, requester_pays=False, exclusive_create=True)


def with_own_limit(store: S3Store) -> S3Store:
    """A client that no test has slowed down."""
    return S3Store(store.url, **store._client._options)
