"""Only one module opens Parquet files; it protects the library against malicious footers. No other module uses
pyarrow's readers, or reads the metadata of a column chunk from an unchecked footer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUARD = "deltalog/parquet/footers.py"
READERS = {"ParquetFile", "ParquetDataset", "read_metadata", "read_schema", "read_table", "read_pandas", "dataset"}
# Other modules that may use pyarrow's readers, and why.
ALLOWED = {
    GUARD: "the guard",
    "deltalog/conformance/builder.py": "reads files that it wrote",
    "deltalog/conformance/log_checks.py": "reads files that it wrote",
    "deltalog/testing/store_contract.py": "reads files that it wrote",
    "spark_ext/reading/scan.py": "runs in workers that have pyarrow only, and passes the bound on lists",
}


def calls(tree: ast.AST) -> Iterator[str]:
    """The pyarrow readers that a module calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            if name in READERS and (not of or of.split(".")[-1] in ("pq", "parquet", "ds", "dataset")):
                yield name


def test_only_the_guard_opens_parquet_files() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("deltalog", "spark_ext")
        for path in (ROOT / package).rglob("*.py")
        if [*calls(ast.parse(path.read_text(encoding="utf-8")))]
    }
    assert found == set(ALLOWED)


def test_the_worker_passes_the_bound() -> None:
    assert "thrift_container_size_limit=most_items" in (ROOT / "spark_ext/reading/scan.py").read_text(encoding="utf-8")
