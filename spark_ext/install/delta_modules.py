"""The modules ``delta``, ``delta.tables``, ``delta.exceptions`` and ``delta.pip_utils``, implemented with spark_ext."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import deltalog
from spark_ext.delta_table import DeltaTable
from spark_ext.install import delta_exceptions
from spark_ext.maintenance.optimize import DeltaOptimizeBuilder
from spark_ext.rows.merge_builder import DeltaMergeBuilder
from spark_ext.writing.table_builder import DeltaTableBuilder, IdentityGenerator

_TABLES = {
    "DeltaTable": DeltaTable,
    "DeltaMergeBuilder": DeltaMergeBuilder,
    "DeltaTableBuilder": DeltaTableBuilder,
    "DeltaOptimizeBuilder": DeltaOptimizeBuilder,
    "IdentityGenerator": IdentityGenerator,
}


def configure_spark_with_delta_pip(
    spark_session_builder: Any, extra_packages: list[str] | None = None, scala_version: str | None = None
) -> Any:
    """The builder, unchanged except that ``extra_packages`` are added: deltalog needs no jar."""
    if extra_packages:
        return spark_session_builder.config("spark.jars.packages", ",".join(extra_packages))
    return spark_session_builder


class Modules:
    """The modules of ``delta`` in ``sys.modules``, and the modules that they replaced."""

    def __init__(self) -> None:
        self._before: dict[str, ModuleType] = {}
        self._made: dict[str, ModuleType] = {}

    def add(self) -> None:
        """Put the modules into ``sys.modules``. Loaded modules of the package delta-spark are temporarily removed."""
        self._before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "delta"}
        for name in self._before:
            del sys.modules[name]
        names = [
            name for name in vars(delta_exceptions) if name.endswith("Exception") and not name.startswith("PySpark")
        ]
        classes = {name: getattr(delta_exceptions, name) for name in names}
        root = _module("delta", DeltaTable=DeltaTable, configure_spark_with_delta_pip=configure_spark_with_delta_pip)
        vars(root)["__version__"], vars(root)["__path__"] = deltalog.__version__, []
        root.__all__ = ["DeltaTable", "configure_spark_with_delta_pip", "__version__"]  # type: ignore[attr-defined]
        self._made = {
            "delta": root,
            "delta.tables": _module("delta.tables", **_TABLES),
            "delta.exceptions": _module("delta.exceptions", **classes),
            "delta.pip_utils": _module(
                "delta.pip_utils", configure_spark_with_delta_pip=configure_spark_with_delta_pip
            ),
        }
        for name, module in self._made.items():
            sys.modules[name] = module
            if name != "delta":
                setattr(root, name.partition(".")[2], module)

    def remove(self) -> None:
        """Restore the modules that were there before."""
        for name in [each for each in sys.modules if each.partition(".")[0] == "delta"]:
            del sys.modules[name]
        sys.modules.update(self._before)


def _module(name: str, **members: Any) -> ModuleType:
    made = ModuleType(name, "Implemented by spark_ext; see spark_ext.install.")
    vars(made).update(members)
    made.__all__ = sorted(members)  # type: ignore[attr-defined]
    return made
