"""Copies of an S3 store that access the same location through other clients."""

from __future__ import annotations

from deltalog.storage.s3.store import S3Store


def through_botocore(store: S3Store) -> S3Store:
    """A store that sends every request through botocore, because it has an option that only botocore supports."""
    return S3Store(store.url, **store._client._options, requester_pays=False, exclusive_create=True)


def with_own_limit(store: S3Store) -> S3Store:
    """A store whose client has a request limit of its own, so that other tests do not lower it."""
    return S3Store(store.url, **store._client._options)
