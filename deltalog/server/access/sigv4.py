"""Principals by AWS signatures (Signature Version 4) with access keys of the catalog."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SigV4Settings:
    """How AWS signatures are verified. ``key_file``: the file with the server's key, at least 32 characters, from which
    the secrets of access keys are derived. ``regions``, ``services``: the accepted regions (empty: any) and services of
    signatures. ``window_seconds``: how much the time of a signature may differ from the server's clock."""

    key_file: str
    regions: tuple[str, ...] = ()
    services: tuple[str, ...] = ("lakeformation",)
    window_seconds: float = 900
