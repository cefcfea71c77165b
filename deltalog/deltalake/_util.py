"""Helpers under the names of ``deltalake._util``, which some programs import."""

from __future__ import annotations

import warnings
from typing import Any

from deltalog.deltalake.filters import encode_partition_value

__all__ = ["deprecate_positional_commit_args", "encode_partition_value", "take_positions", "warn_of_positions"]


def deprecate_positional_commit_args(
    method_name: str,
    args: tuple[Any, ...],
    commit_properties: Any = None,
    post_commithook_properties: Any = None,
    legacy_order: tuple[str, ...] = ("commit_properties", "post_commithook_properties"),
) -> tuple[Any, Any]:
    """The commit and hook properties; old programs pass some of them by position, as listed in ``legacy_order``."""
    given = {"commit_properties": commit_properties, "post_commithook_properties": post_commithook_properties}
    if args:
        if len(args) > len(legacy_order):
            raise TypeError(
                f"{method_name}() takes at most {len(legacy_order)} positional commit argument(s), got {len(args)}"
            )
        warn_of_positions(method_name, 4)
        take_positions(method_name, args, legacy_order, given, dict.fromkeys(given))
    return given["commit_properties"], given["post_commithook_properties"]


def warn_of_positions(method_name: str, stacklevel: int = 3) -> None:
    """Warn that commit arguments are passed by position."""
    warnings.warn(
        f"{method_name}() takes commit arguments by keyword; passing them positionally is deprecated.",
        DeprecationWarning,
        stacklevel=stacklevel,
    )


def take_positions(
    method_name: str, args: tuple[Any, ...], names: tuple[str, ...], given: dict[str, Any], unset: dict[str, Any]
) -> None:
    """Put arguments passed by position into ``given``. Raises TypeError for one that is passed both ways. ``unset``:
    the values that stand for an argument that was not passed by keyword."""
    if len(args) > len(names):
        raise TypeError(f"{method_name}() got unexpected positional arguments")
    for name, value in zip(names, args, strict=False):
        if given[name] is not unset[name]:
            raise TypeError(f"{method_name}() got multiple values for {name!r}")
        given[name] = value
