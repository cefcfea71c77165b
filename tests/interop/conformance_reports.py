"""Writes docs/conformance/reports: drafts of reports for the failures of other engines that no public issue describes.

    python -m tests.interop.conformance_reports

An explanation in tests/interop/conformance/explanations.json has an ``issue``, the address of a public issue or
discussion, or a ``report``, the name of a draft. One that has neither gets it here: an issue from issues.json beside
that file, or a new draft. The words of drafts are in reports.json; a draft without words there is described by the
cases that fail.

The steps of a draft are a program, which is made from the confirmation of the explanation in
tests/interop/confirmations.py; what it prints is what the confirmation has observed. test_interop_reports.py runs the
programs.
"""

from __future__ import annotations

import ast
import fnmatch
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalog.conformance import all_cases
from deltalog.conformance.case import REFERENCE
from tests.interop import confirmations
from tests.support.protocol_sections import ANCHORS, URL

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "conformance" / "reports"
RESULTS = Path(__file__).with_name("conformance")
_SOURCE = Path(confirmations.__file__).read_text(encoding="utf-8")
_LINES = _SOURCE.splitlines()
_TREE = ast.parse(_SOURCE)


@dataclass(frozen=True)
class Report:
    """A draft. ``project``: the repository that the report is for. ``case``: the first pattern of the explanation whose
    confirmation the steps are. ``expected``: what must happen, in one or two sentences. ``section``: the section of
    PROTOCOL.md that says so. ``basis``: a sentence on what the section says, if it does not decide it alone.
    ``related``: other public threads, and what they are."""

    name: str
    engine: str
    project: str
    case: str
    title: str
    expected: str
    section: str
    basis: str = "{link}"
    related: tuple[tuple[str, str], ...] = ()

    @property
    def path(self) -> Path:
        return PLACE / f"{self.name}.md"


Explanations = dict[str, list[dict[str, str]]]
_DRAFTS = {each["name"]: each for each in json.loads((RESULTS / "reports.json").read_text(encoding="utf-8"))}
# The repositories of the engines, and public issues with the explanations that they are about.
_KNOWN = json.loads((RESULTS / "issues.json").read_text(encoding="utf-8"))


def explanations() -> Explanations:
    """All explanations, each with an ``issue`` or a ``report``."""
    found: Explanations = json.loads(confirmations.EXPLANATIONS.read_text(encoding="utf-8"))
    known = {place: url for url, places in _KNOWN["issues"].items() for place in places}
    for engine, entries in found.items():
        for entry in entries:
            first = entry["cases"].split()[0]
            if "issue" not in entry and "report" not in entry:
                if url := known.get(f"{engine} {first}"):
                    entry["issue"] = url
                else:
                    entry["report"] = f"{engine}-{first.replace('*', '').strip('-')}"
    return found


def reports(explained: Explanations) -> tuple[Report, ...]:
    """The drafts. An explanation of an engine may name the draft for another, which it uses."""
    found: dict[str, Report] = {}
    for engine, entries in explained.items():
        for entry in entries:
            name = entry.get("report")
            if name is None or name in found or not (RESULTS / f"{engine}.json").exists():
                continue  # an engine without results fails nothing yet
            words = _DRAFTS.get(name)
            if words is None:
                found[name] = _described(name, engine, entry, entries)
            elif words["engine"] == engine:
                related = tuple((each["url"], each["what"]) for each in words.get("related", ()))
                found[name] = Report(**{**words, "related": related})
    return tuple(found[name] for name in sorted(found))


def _described(name: str, engine: str, entry: Mapping[str, str], entries: Sequence[Mapping[str, str]]) -> Report:
    """A draft in the words of the explanation and of the cases that fail."""
    failed = stored(engine)["failed"]
    cases = [case for case in all_cases() if case.id in failed and _entry_of(case.id, entries) is entry]
    if not cases:
        raise ValueError(f"{engine}: no failed case is explained by {entry['cases']!r}.")
    about = list(dict.fromkeys(case.about for case in cases))
    more = [f"The same holds for {len(about) - _SHOWN} more cases."] if len(about) > _SHOWN else []
    basis = (
        f"{_LINK} does not decide it; the reference implementation does this." if cases[0].basis == REFERENCE else _LINK
    )
    return Report(
        name,
        engine,
        _project(engine),
        entry["cases"].split()[0],
        f"{engine}: {entry['why'].rstrip('.')}",
        "\n".join([*(f"- {each}." for each in about[:_SHOWN]), *([""] if more else []), *more]),
        cases[0].section,
        basis,
    )


_SHOWN = 4
_LINK = "{link}"


def _entry_of(id: str, entries: Sequence[Mapping[str, str]]) -> Mapping[str, str] | None:
    matching = (entry for entry in entries if any(fnmatch.fnmatchcase(id, each) for each in entry["cases"].split()))
    return next(matching, None)


def _project(engine: str) -> str:
    return str(_KNOWN["projects"][engine])


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


# The functions that start what a program talks to, and the name that the methods give it.
_STARTS = {"sail": ("spark", "sail_session"), "kernel-java": ("jvm", "kernel_jvm")}


def program(report: Report) -> str:
    """The confirmation as a program of its own: the functions and constants that it uses, and its call."""
    engine: Any = confirmations.CLASSES[report.engine]
    method = engine.CASES[report.case]
    tree = _TREE
    methods = _methods(tree, engine)
    top = {name: node for node in tree.body for name in _names(node)}
    wanted = {"Path", "tempfile"}
    queue: list[ast.AST] = [methods[method]]
    name, start = _STARTS.get(report.engine, ("", ""))
    if start:
        queue.append(top[start])
        wanted.add(start)
    used_methods, imports = {method}, {"Path", "tempfile"}
    while queue:
        for each in _used(queue.pop()):
            if each.startswith("self."):
                if each[5:] in methods and each[5:] not in used_methods:
                    used_methods.add(each[5:])
                    queue.append(methods[each[5:]])
            elif each in top and each not in wanted:
                wanted.add(each)
                if isinstance(top[each], (ast.Import, ast.ImportFrom)):
                    imports.add(each)
                else:
                    queue.append(top[each])
    parts = ["from __future__ import annotations\n\n" + "\n".join(_import_lines(tree, imports))]
    if report.engine == "delta-spark":
        parts.append(_SESSION.rstrip("\n"))
    assigned = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    constants = [node for node in assigned if wanted & {*_names(node)}]
    if constants:
        parts.append("\n".join(_text(node) for node in constants))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    parts += [_text(node) for node in functions]
    if start:
        parts.append(f"{name} = {start}()")
    used = {each: node for each, node in methods.items() if each in used_methods}
    # A function must not have the name of a variable in a function that calls it.
    clashing = used_methods & {each for node in used.values() for each in _variables(node)}
    names = {each: f"{each}_" if each in clashing else each for each in used_methods}
    parts += [_as_function(_text(node), names) for node in used.values()]
    parts.append(f'root = Path(tempfile.mkdtemp()) / "table"\nroot.mkdir()\nprint({names[method]}(root))')
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
    lines = _LINES[node.lineno - 1 : node.end_lineno]
    margin = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[margin:] if line[:margin].isspace() or not margin else line for line in lines)


def _variables(node: ast.AST) -> Iterator[str]:
    """The names of the parameters and of the variables that code sets."""
    for each in ast.walk(node):
        if isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id


def _as_function(method: str, names: Mapping[str, str]) -> str:
    """The source of a method as that of a function. ``names``: the names of the functions, by method."""
    text = re.sub(r"\(\s*self(?:, *)?", "(", method, count=1)
    text = re.sub(r"^def (\w+)", lambda found: f"def {names[found[1]]}", text, flags=re.M)
    return re.sub(r"\bself\.(\w+)", lambda found: names.get(found[1], found[1]), text)


# ---------------------------------------------------------------------------------------------------- pages


def stored(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def explanation(report: Report, explained: Explanations) -> Mapping[str, str]:
    """The explanation that a report is of."""
    (found,) = (entry for entry in explained[report.engine] if entry["cases"].split()[0] == report.case)
    return dict(found)


def page(report: Report, explained: Explanations) -> str:
    """A draft, ready to be sent."""
    if report.section not in ANCHORS:
        raise ValueError(f"{report.name}: PROTOCOL.md has no section {report.section}.")
    entry = explanation(report, explained)
    link = f"[PROTOCOL.md#{report.section}]({URL}#{report.section})"
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
        report.basis.replace("{link}", link),
        "",
        "## Observed",
        "",
        "```text",
        entry["confirmed"],
        "```",
        "",
    ]
    if report.related:
        lines += ["## Related", "", *(f"- [{_short(url)}]({url}): {what}" for url, what in report.related), ""]
    return "\n".join(lines)


def index(explained: Explanations) -> str:
    """The list of all drafts, and of the public issues."""
    lines = [
        "# Reports of what fails elsewhere",
        "",
        "Generated by `python -m tests.interop.conformance_reports`. Each failure of another engine in the",
        "[conformance matrix](../../conformance-matrix.md) is described by a public issue, or by a draft that anybody",
        "can send to the project. The program in a draft needs the engine and pyarrow, and nothing of this project; it",
        "prints what is listed as observed. The tests run these programs.",
        "",
        "## Drafts",
        "",
        "| For | Draft | Section of PROTOCOL.md |",
        "| --- | --- | --- |",
    ]
    for report in reports(explained):
        section = f"[{report.section}]({URL}#{report.section})"
        lines.append(f"| {report.project} | [{report.title}]({report.name}.md) | {section} |")
    lines += ["", "## Public issues", "", "| Engine | What fails | Issue |", "| --- | --- | --- |"]
    for engine, entries in explained.items():
        for entry in entries:
            if url := entry.get("issue"):
                lines.append(f"| {engine} | {entry['why']} | [{_short(url)}]({url}) |")
    return "\n".join([*lines, ""])


def _short(url: str) -> str:
    return re.sub(r"/(issues|pull|discussions)/", "#", url.removeprefix("https://github.com/"))


def pages(explained: Explanations) -> dict[Path, str]:
    found = {report.path: page(report, explained) for report in reports(explained)}
    return {**found, PLACE / "README.md": index(explained)}


def main() -> None:
    explained = explanations()
    confirmations.EXPLANATIONS.write_text(json.dumps(explained, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    found = pages(explained)
    PLACE.mkdir(parents=True, exist_ok=True)
    for old in set(PLACE.glob("*.md")) - set(found):
        old.unlink()
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
