"""Engines by their names, and by ``module:Class``. Each is imported when it is used."""

from __future__ import annotations

import importlib

from deltalog.conformance.engine import Engine
from deltalog.errors import CallError

# The class, and what it needs besides deltalog.
ENGINES = {
    "deltalog": "deltalog.conformance.engines.deltalog:DeltalogEngine",
    "deltalake": "deltalog.conformance.engines.deltalake:DeltalakeEngine",
    "polars": "deltalog.conformance.engines.polars:PolarsEngine",
    "duckdb": "deltalog.conformance.engines.duckdb:DuckDBEngine",
    "delta-spark": "spark_ext.conformance:DeltaSparkEngine",
    "spark_ext": "spark_ext.conformance:SparkExtEngine",
}


def load_engine(name: str) -> Engine:
    """The engine of a name in ``ENGINES``, or of ``module:Class``. Raises CallError for another name, and where a
    package that it needs is not installed."""
    place = ENGINES.get(name, name)
    module, colon, attribute = place.partition(":")
    if not colon:
        raise CallError(f"there is no engine {name!r}: it is one of {', '.join(ENGINES)}, or module:Class.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise CallError(f"the engine {name} cannot be used here: {error}") from error
    except AttributeError as error:
        raise CallError(f"the module {module} has no {attribute}.") from error
    engine = found()
    if not isinstance(engine, Engine):
        raise CallError(f"{place} is no deltalog.conformance.Engine.")
    return engine
