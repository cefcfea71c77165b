"""Credentials for the locations of tables."""

from __future__ import annotations

from deltalog.unity import messages


class Vendor:
    """Vends credentials for locations. A location on a local disk needs none."""

    def vend(self, location: str, operation: messages.CredentialOperation) -> list[messages.StorageCredential]:
        """The credentials for a location."""
        return []
