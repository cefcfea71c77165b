"""Writes docs/conformance/reports: a draft of a report for each failure of another engine that no public issue describes.

    python -m tests.interop.conformance_reports

An explanation in tests/interop/conformance/explanations.json has an ``issue``, the address of a public issue or
discussion, or a ``report``, the name of a draft here. The steps of a draft are a program made from the confirmation of
the explanation in tests/interop/confirmations.py; what it prints is what the confirmation has observed.
test_interop_reports.py runs the programs.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import confirmations
from tests.support.protocol_sections import ANCHORS, URL

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "conformance" / "reports"
RESULTS = Path(__file__).with_name("conformance")
_SOURCE = Path(confirmations.__file__).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Report:
    """A draft. ``project``: the repository that the report is for. ``case``: the first pattern of the explanation whose
    confirmation the steps are. ``expected``: what must happen, in one or two sentences. ``section``: the section of
    PROTOCOL.md that says so. ``reference``: the section does not decide it, and the reference implementation does it.
    ``related``: other public threads, and what they are."""

    name: str
    engine: str
    project: str
    case: str
    title: str
    expected: str
    section: str
    reference: bool = False
    related: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> Path:
        return PLACE / f"{self.name}.md"


RS, POLARS, DELTA = "delta-io/delta-rs", "pola-rs/polars", "delta-io/delta"
READERS = "recommendations-for-readers-of-tables-with-in-commit-timestamps"
WRITERS = "writer-requirements-for-in-commit-timestamps"

REPORTS = (
    Report(
        "deltalake-time-outside-the-history",
        "deltalake",
        RS,
        "travel-time-before-first",
        "load_as_version with a time before the first or after the latest version silently loads that version",
        "An error. No version existed before the first commit, and which version will be current after the latest one "
        "is not known. delta-spark raises an error that names the first and the latest time.",
        READERS,
        reference=True,
    ),
    Report(
        "deltalake-file-times-not-increasing",
        "deltalake",
        RS,
        "travel-time-equal",
        "load_as_version finds a wrong version if the times of commit files are equal or decrease",
        "Version 2 both times. The files of the commits have equal times, or times that decrease, as after a copy of "
        "the table. delta-spark and the Delta kernels first make the times increase, by 1 ms from version to version "
        "where necessary, and search only then.",
        READERS,
        reference=True,
        related=(("https://github.com/delta-io/delta-kernel-rs/pull/2663", "the same rule in the Rust kernel"),),
    ),
    Report(
        "deltalake-history-shows-the-clock-of-the-writer",
        "deltalake",
        RS,
        "travel-time-history-back",
        "history() shows commitInfo.timestamp, by which no version can be loaded",
        "The times by which `load_as_version` finds the versions: the in-commit timestamps if they are enabled, and "
        "otherwise the times of the commit files. `commitInfo.timestamp` is free-form information of the writer, and "
        "may differ from both.",
        "commit-provenance-information",
        reference=True,
        related=(
            (
                "https://github.com/delta-io/delta-rs/issues/1972",
                "the opposite wish, declined because `commitInfo` is free-form",
            ),
        ),
    ),
    Report(
        "deltalake-history-numbers-its-entries",
        "deltalake",
        RS,
        "ict-damage-*-history",
        "history() assigns wrong version numbers if a commit has no commitInfo",
        "The entries of versions 0 and 2 with their own numbers. `commitInfo` is optional, so that a commit without one "
        "is valid. The entries are numbered downwards from the latest version instead of by their files.",
        "commit-provenance-information",
        related=(
            (
                "https://github.com/delta-io/delta-rs/issues/4488",
                "wrong numbers for another reason, from the same way of numbering",
            ),
        ),
    ),
    Report(
        "deltalake-time-travel-needs-the-commit-of-a-checkpoint",
        "deltalake",
        RS,
        "ict-cleaned-commit-of-checkpoint-gone",
        "load_as_version with a time fails if the commit file of the oldest checkpoint is gone",
        "Version 2, whose commit file is there with its time. Only the times of the commits that are left can be known; "
        "the checkpoint holds the state before them.",
        "checkpoints",
        related=(("https://github.com/delta-io/delta-rs/issues/521", "the same symptom in logs that begin later; fixed"),),
    ),
    Report(
        "deltalake-feed-of-a-removed-file-with-a-deletion-vector",
        "deltalake",
        RS,
        "feed-vector-removed",
        "The change data feed of a removed file with a deletion vector has the rows that were deleted before",
        "The rows 1 and 3 as deleted. Row 2 had been deleted by the version before; it is not part of the removed "
        "logical file.",
        "reader-requirements-for-addcdcfile",
        related=(("https://github.com/delta-io/delta-rs/pull/4639", "deletion vectors in the change data feed"),),
    ),
    Report(
        "deltalake-column-mapping-by-id",
        "deltalake",
        RS,
        "feature-mapping-id-only",
        "Column mapping mode id: columns are found by physical name, so that they are silently null",
        "The value 7. In mode `id`, readers must resolve columns by the field ids in the Parquet file.",
        "reader-requirements-for-column-mapping",
        related=(
            (
                "https://github.com/feldera/feldera/issues/6557",
                "a project that uses delta-rs, and has such tables from Iceberg",
            ),
        ),
    ),
    Report(
        "polars-panic-for-a-shorter-file",
        "polars",
        POLARS,
        "read-damaged-file",
        "scan_delta: PanicException if a data file is shorter than the size in the log",
        "An error that can be handled, as for a damaged file of the right size. The size comes from the Delta log; the "
        "file is damaged, which must not end in a panic.",
        "add-file-and-remove-file",
        reference=True,
        related=(("https://github.com/pola-rs/polars/issues/25777", "another assertion that ends in a panic"),),
    ),
    Report(
        "delta-spark-version-of-a-checkpoint-without-its-commit",
        "delta-spark",
        DELTA,
        "ict-cleaned-commit-of-checkpoint-gone",
        "[Spark] A version cannot be read if only its checkpoint is left, not its commit file",
        "The rows 0 and 1. The checkpoint of version 1 holds the whole state of that version, and version 2, which is "
        "built on it, can be read.",
        "checkpoints",
        reference=True,
        related=(("https://github.com/delta-io/delta/pull/3080", "the check that requires the commit file"),),
    ),
    Report(
        "delta-spark-half-an-enablement-pair",
        "delta-spark",
        DELTA,
        "ict-create-half-pair",
        "[Spark] A caller can set one of the two properties of the enablement of in-commit timestamps",
        "An error, or properties without the one that the caller has set. The writer tracks both properties itself, and "
        "only where the table has commits without in-commit timestamps. Readers decide by both of them which commits "
        "have an in-commit timestamp: a version 7 without a timestamp misleads them.",
        WRITERS,
    ),
    Report(
        "delta-spark-enablement-pair-stays-behind",
        "delta-spark",
        DELTA,
        "ict-disable-no-pair",
        "[Spark] The properties of the enablement stay behind when in-commit timestamps are disabled",
        "Neither property is left, as after DROP FEATURE. The pair names a commit of a period that has ended. A writer "
        "that enables in-commit timestamps again and finds a pair may keep it, and readers then expect in-commit "
        "timestamps in commits that have none.",
        WRITERS,
        reference=True,
        related=(("https://github.com/delta-io/delta/pull/2873", "DROP FEATURE removes both"),),
    ),
    Report(
        "delta-spark-commit-file-with-a-short-name",
        "delta-spark",
        DELTA,
        "read-stray-short-name",
        "[Spark] A file `2.json` in the log is read as the commit of version 2",
        "The rows 0 and 1. Names of commit files have 20 digits, so that `2.json` is no commit.",
        "delta-log-entries",
        related=(("https://github.com/delta-io/delta/pull/3552", "names that the Java kernel must ignore"),),
    ),
    Report(
        "delta-spark-property-of-an-unlisted-feature",
        "delta-spark",
        DELTA,
        "ict-active-no-feature",
        "[Spark] A table is unreadable if a property would enable a writer feature that the protocol does not list",
        "The rows. A feature is active only if the protocol lists it, so that the property has no effect; and "
        "`inCommitTimestamp` is a feature of writers, which readers need not know.",
        "active-features",
        related=(("https://github.com/delta-io/delta/pull/1530", "where the check was introduced"),),
    ),
    Report(
        "delta-spark-in-commit-timestamps-without-the-feature",
        "delta-spark",
        DELTA,
        "ict-active-no-features",
        "[Spark] DESCRIBE HISTORY trusts in-commit timestamps although the protocol does not list the feature",
        "The times of the commit files. In-commit timestamps are enabled only at writer version 7, with the feature in "
        "`writerFeatures` and the property set; this table has reader version 1 and writer version 2, whose writers do "
        "not keep the timestamps.",
        "in-commit-timestamps",
    ),
    Report(
        "delta-spark-append-without-the-feature",
        "delta-spark",
        DELTA,
        "ict-write-property-only",
        "[Spark] An append fails if the property of in-commit timestamps is set and the feature is not listed",
        "The row is appended. In-commit timestamps are not enabled in this table, whose writer version is 2, so that no "
        "commit needs one.",
        "in-commit-timestamps",
    ),
    Report(
        "delta-spark-text-as-in-commit-timestamp",
        "delta-spark",
        DELTA,
        "ict-damage-text-*-rows",
        "[Spark] A commit whose inCommitTimestamp is text makes all rows unreadable",
        "The rows of the latest version. Their reading needs no timestamp; only time travel by timestamp and the history "
        "should fail. `commitInfo` may contain any JSON.",
        "commit-provenance-information",
        reference=True,
    ),
)


# ------------------------------------------------------------------------------------------------- programs

_SESSION = """\
from pyspark.sql import SparkSession
from delta import configure_spark_with_delta_pip

spark = configure_spark_with_delta_pip(
    SparkSession.builder.master("local[1]")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
).getOrCreate()
"""
_CLASSES = {
    "deltalake": confirmations.Deltalake,
    "polars": confirmations.Polars,
    "delta-spark": confirmations.DeltaSpark,
}


def program(report: Report) -> str:
    """The confirmation as a program of its own: the functions and constants that it uses, and its call."""
    engine: Any = _CLASSES[report.engine]
    method = engine.CASES[report.case]
    tree = ast.parse(_SOURCE)
    methods = _methods(tree, engine)
    top = {name: node for node in tree.body for name in _names(node)}
    wanted, queue = {"Path", "tempfile"}, [methods[method]]
    used_methods, imports = {method}, {"Path", "tempfile"}
    while queue:
        node = queue.pop()
        for name in _used(node):
            if name.startswith("self."):
                new = name[5:] in methods and name[5:] not in used_methods
                if new:
                    used_methods.add(name[5:])
                    queue.append(methods[name[5:]])
            elif name in top and name not in wanted:
                wanted.add(name)
                if isinstance(top[name], (ast.Import, ast.ImportFrom)):
                    imports.add(name)
                else:
                    queue.append(top[name])
    parts = ["from __future__ import annotations\n\n" + "\n".join(_import_lines(tree, imports))]
    if report.engine == "delta-spark":
        parts.append(_SESSION.rstrip("\n"))
    constants = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign)) and wanted & {*_names(node)}]
    if constants:
        parts.append("\n".join(_text(node) for node in constants))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    parts += [_text(node) for node in functions]
    parts += [_as_function(_text(node)) for name, node in methods.items() if name in used_methods]
    parts.append(f'root = Path(tempfile.mkdtemp()) / "table"\nroot.mkdir()\nprint({method}(root))')
    return "\n\n\n".join(parts) + "\n"


def _methods(tree: ast.Module, engine: type) -> dict[str, ast.FunctionDef]:
    """The methods of a class and of its bases, in the order of the source."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    found: dict[str, ast.FunctionDef] = {}
    for each in reversed(engine.__mro__):
        for node in classes[each.__name__].body if each.__name__ in classes else ():
            if isinstance(node, ast.FunctionDef):
                found[node.name] = node
    return found


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement of the module defines."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _used(node: ast.AST) -> Iterator[str]:
    """The names that code uses; attributes of ``self`` as ``self.name``."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
            yield f"self.{each.attr}"


def _import_lines(tree: ast.Module, wanted: set[str]) -> list[str]:
    lines = {"import tempfile", "from pathlib import Path"}
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias for alias in node.names if (alias.asname or alias.name) in wanted]
            kept = ", ".join(f"{each.name} as {each.asname}" if each.asname else each.name for each in names)
            if kept:
                start = f"from {node.module} import" if isinstance(node, ast.ImportFrom) else "import"
                lines.add(f"{start} {kept}")
    return sorted(lines, key=lambda line: (line.startswith("from"), line))


def _text(node: ast.stmt) -> str:
    """The source of a statement, with its indentation removed."""
    lines = _SOURCE.splitlines()[node.lineno - 1 : node.end_lineno]
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] if line[:margin].isspace() or not margin else line for line in lines)


def _as_function(method: str) -> str:
    return re.sub(r"\bself\.", "", re.sub(r"\(self(?:, )?", "(", method, count=1))


# ---------------------------------------------------------------------------------------------------- pages


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def explanation(report: Report, explanations: Mapping[str, Any]) -> Mapping[str, str]:
    """The explanation that a report is of."""
    (found,) = (entry for entry in explanations[report.engine] if entry["cases"].split()[0] == report.case)
    return dict(found)


def page(report: Report, explanations: Mapping[str, Any]) -> str:
    """A draft, ready to be sent."""
    if report.section not in ANCHORS:
        raise ValueError(f"{report.name}: PROTOCOL.md has no section {report.section}.")
    entry = explanation(report, explanations)
    link = f"[PROTOCOL.md#{report.section}]({URL}#{report.section})"
    basis = f"The section {link} does not decide it; the reference implementation does this." if report.reference else link
    lines = [
        "<!-- Generated by python -m tests.interop.conformance_reports -->",
        "",
        f"# {report.title}",
        "",
        f"For [{report.project}](https://github.com/{report.project}/issues). "
        f"Version: {report.engine} {stored(report.engine)['version']}.",
        "",
        entry["why"],
        "",
        "## Steps to reproduce",
        "",
        "```python no-run",
        program(report).rstrip("\n"),
        "```",
        "",
        "## Expected",
        "",
        report.expected,
        "",
        basis,
        "",
        "## Observed",
        "",
        "```text",
        entry["confirmed"],
        "```",
        "",
    ]
    if report.related:
        lines += ["## Related", "", *(f"- [{url.removeprefix('https://github.com/')}]({url}): {what}" for url, what in report.related), ""]
    return "\n".join(lines)


def index(explanations: Mapping[str, Any]) -> str:
    """The list of all drafts, and of the public issues."""
    lines = [
        "# Reports of what fails elsewhere",
        "",
        "Generated by `python -m tests.interop.conformance_reports`. Each failure of another engine in the",
        "[conformance matrix](../../conformance-matrix.md) is described by a public issue, or by a draft that anybody can send",
        "to the project. The program in a draft needs the engine and pyarrow, and nothing of this project; it prints what is",
        "listed as observed. The tests run these programs.",
        "",
        "## Drafts",
        "",
        "| For | Draft | Section of PROTOCOL.md |",
        "| --- | --- | --- |",
    ]
    for report in REPORTS:
        section = f"[{report.section}]({URL}#{report.section})" + (", *reference*" if report.reference else "")
        lines.append(f"| {report.project} | [{report.title}]({report.name}.md) | {section} |")
    lines += ["", "## Public issues", "", "| Engine | What fails | Issue |", "| --- | --- | --- |"]
    for engine, entries in explanations.items():
        for entry in entries:
            if url := entry.get("issue"):
                name = url.removeprefix("https://github.com/").replace("/issues/", "#").replace("/pull/", "#")
                lines.append(f"| {engine} | {entry['why']} | [{name}]({url}) |")
    return "\n".join([*lines, ""])


def pages(explanations: Mapping[str, Any]) -> dict[Path, str]:
    found = {report.path: page(report, explanations) for report in REPORTS}
    return {**found, PLACE / "README.md": index(explanations)}


def main() -> None:
    found = pages(json.loads(confirmations.EXPLANATIONS.read_text(encoding="utf-8")))
    PLACE.mkdir(parents=True, exist_ok=True)
    for old in set(PLACE.glob("*.md")) - set(found):
        old.unlink()
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
