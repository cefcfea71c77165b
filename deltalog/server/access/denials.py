"""The error of a call that its caller may not make. Pure."""

from __future__ import annotations

from deltalog.errors import DeltaLogError


class PermissionDeniedError(DeltaLogError):
    """The caller may not make this call on an object that it may see, or not with this credential."""
