"""All named checks of a log. ``Log("commit-info-first")`` in a case runs ``CHECKS["commit-info-first"]``;
docs/conformance-format.md lists them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalog.conformance import feature_checks, log_checks
from deltalog.conformance.log_view import Check, LogView

CHECKS: Mapping[str, Check] = {**log_checks.CHECKS, **feature_checks.CHECKS}


def run(view: LogView, name: str, version: int | None, value: Any) -> str | None:
    """Run a check. Returns a message if the check fails, otherwise None. ``version``: the version to check, by default
    the latest."""
    return CHECKS[name](view, view.latest() if version is None else version, value)
