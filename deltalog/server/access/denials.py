"""The error for a call that the caller is not permitted to make. Pure."""

from __future__ import annotations

from deltalog.errors import DeltaLogError


class PermissionDeniedError(DeltaLogError):
    """The caller is not permitted to make this call: it can see the object but lacks a privilege on it, or the scope of
    its credential is too small.
    """
