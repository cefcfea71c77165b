"""The calls of Unity Catalog's general API that clients of Delta tables need."""

from __future__ import annotations

from deltalog.server.unity.service import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = ()
