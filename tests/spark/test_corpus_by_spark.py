"""For every table of the conformance corpus, spark_ext returns the same rows and changes, and refuses the same reads,
as deltalog without Spark."""

from __future__ import annotations

import importlib.util
import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import deltalog
import spark_ext
from tests.corpus.test_corpus import CHECKER, CORPUS, absent, found
from tests.spark.tables import to_arrow

GROUPS = ("rows", "cdf", "error")
# For some tables: the versions of PySpark that cannot read them, and the reason.
NOT_IN_SPARK = {
    "delta__variant-stats-nested-no-checkpoint": (
        "4.0.",
        "Spark raises a NullPointerException when it scans variants in structs",
    ),
}


def entries() -> list[Any]:
    if not found():
        return [pytest.param({}, marks=pytest.mark.skip(reason=absent()))]
    index = json.loads((CORPUS / "index.json").read_text(encoding="utf-8"))
    return [pytest.param(entry, id=entry["name"]) for entry in index if set(GROUPS) & set(entry["assert"])]


def by_spark(spark: Any) -> Any:
    """The checker of the corpus, changed so that Spark reads the rows."""
    spec = importlib.util.spec_from_file_location("corpus_check", CHECKER)
    assert spec is not None and spec.loader is not None
    checker: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(checker)

    class BySpark(checker.Checker):
        def scan(self, version: int | None = None) -> Any:
            reader = spark_ext.read(spark)
            return to_arrow((reader if version is None else reader.option("versionAsOf", version)).load(self.path))

        def cdf(self) -> None:
            expected = self.expected["cdf"]

            def differs() -> Any:
                rows = to_arrow(spark_ext.read_changes(spark, self.path, expected["startingVersion"]))
                if not expected["has_commit_timestamp"]:
                    rows = rows.drop_columns(["_commit_timestamp"])
                parquet = str(Path(self.dir) / expected["expected_parquet"])
                return checker.compare_rows(rows, expected["count"], expected["digest"], parquet)

            self.check("cdf", "changes", differs)

        def error(self) -> None:
            if self.entry.get("error_or_rows_of"):
                super().error()
            # An expected error of the stage ict concerns only timestamps, so loading does not fail.
            elif self.expected["expected_error"]["stage"] != "ict":
                self.must_fail("error", "load", self.scan)

    return BySpark


@pytest.mark.sampled(4)
@pytest.mark.parametrize("entry", entries())
def test_rows_changes_and_refusals(spark: Any, tmp_path: Path, entry: dict[str, Any]) -> None:
    lacking, why = NOT_IN_SPARK.get(entry["name"], (None, ""))
    if lacking is not None and version("pyspark").startswith(lacking):
        pytest.skip(f"{why}: PySpark {lacking}x")
    results = by_spark(spark)(deltalog, str(CORPUS / "tables"), entry, str(tmp_path), GROUPS).run()
    assert [(name, message) for _, name, ok, message in results if not ok] == []
