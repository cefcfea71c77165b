"""Loads engines by name or by ``module:Class``. An engine is imported on first use."""

from __future__ import annotations

import importlib

from deltalog.conformance.engine import Engine
from deltalog.errors import CallError

# By engine name: the module and class of the adapter.
ENGINES = {
    "deltalog": "deltalog.conformance.engines.deltalog:DeltalogEngine",
    "deltalake": "deltalog.conformance.engines.deltalake:DeltalakeEngine",
    "polars": "deltalog.conformance.engines.polars:PolarsEngine",
    "duckdb": "deltalog.conformance.engines.duckdb:DuckDBEngine",
    "delta-spark": "spark_ext.conformance:DeltaSparkEngine",
    "spark_ext": "spark_ext.conformance:SparkExtEngine",
}


def load_engine(name: str) -> Engine:
    """Load an engine by its name in ``ENGINES`` or by ``module:Class``. Raises CallError if there is no such engine or
    a package that it requires is not installed."""
    place = ENGINES.get(name, name)
    module, colon, attribute = place.partition(":")
    if not colon:
        raise CallError(f"there is no engine {name!r}; use one of {', '.join(ENGINES)}, or module:Class.")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise CallError(f"the engine {name} cannot be used here: {error}") from error
    except AttributeError as error:
        raise CallError(f"the module {module} has no {attribute}.") from error
    engine = found()
    if not isinstance(engine, Engine):
        raise CallError(f"{place} is not a subclass of deltalog.conformance.Engine.")
    return engine
