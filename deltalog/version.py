"""The version of this package. Pure."""

from __future__ import annotations

VERSION = "0.1.0"
ENGINE_INFO = f"deltalog/{VERSION}"
