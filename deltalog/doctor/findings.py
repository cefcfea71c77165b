"""Findings, and the report that contains them. Pure."""

from __future__ import annotations

import re
import urllib.parse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from deltalog.doctor.rules import RULES, SEVERITIES, Severity

# The maximum number of findings per rule in a report; it bounds the memory that the report uses.
MOST_OF_A_RULE = 100
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation of a rule.

    ``rule``: the id of the violated rule in deltalog.doctor.rules.RULES. ``version``: the table version, None if the
    finding concerns no single version. ``path``: the path of the file, relative to the table's root or as spelled in
    the log. ``message``: the details. ``remedy``: what to do.
    """

    rule: str
    severity: Severity
    version: int | None
    path: str | None
    message: str
    remedy: str

    def __str__(self) -> str:
        where = ", ".join(
            text for text in (f"version {self.version}" if self.version is not None else "", self.path or "") if text
        )
        return f"{self.severity} {self.rule}{f' ({where})' if where else ''}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values, with the section of PROTOCOL.md."""
        return {**asdict(self), "section": RULES[self.rule].section}


def found(rule: str, message: str, version: int | None = None, path: str | None = None) -> Finding:
    """Create a finding for the rule with this id."""
    row = RULES[rule]
    return Finding(rule, row.severity, version, path, message, row.remedy)


@dataclass(frozen=True, slots=True)
class Examined:
    """Numbers of items checked. ``live_files``: the live files of the latest version; ``footers`` and ``rows``: the
    footers and the rows of data files."""

    commits: int = 0
    checkpoints: int = 0
    checksums: int = 0
    compactions: int = 0
    live_files: int = 0
    footers: int = 0
    rows: int = 0


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check.

    ``findings``: sorted by severity, then version; at most MOST_OF_A_RULE per rule. ``of_rules``: the number of
    findings per rule, including those omitted from ``findings``. ``version``: the latest version in the log; None if
    the log has no version. ``deep``: whether the rows of data files were read. ``is_readable``: whether the log yields
    the state of the latest version.
    """

    url: str
    version: int | None
    deep: bool
    findings: tuple[Finding, ...]
    of_rules: Mapping[str, int] = field(default_factory=dict)
    examined: Examined = field(default_factory=Examined)
    is_readable: bool = True

    @property
    def ok(self) -> bool:
        """Whether there is no finding of severity ``error``."""
        return self.counts["error"] == 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings per severity, including those omitted from ``findings``."""
        numbers: dict[str, int] = dict.fromkeys(SEVERITIES, 0)
        kept: Counter[str] = Counter()
        for finding in self.findings:
            numbers[finding.severity] += 1
            kept[finding.rule] += 1
        for rule, number in self.of_rules.items():
            numbers[RULES[rule].severity] += number - kept[rule]
        return numbers

    @property
    def rules(self) -> list[str]:
        """The ids of the violated rules, the most severe first."""
        return list(dict.fromkeys(finding.rule for finding in self.findings))

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "url": self.url,
            "version": self.version,
            "deep": self.deep,
            "ok": self.ok,
            "counts": self.counts,
            "rules": dict(self.of_rules),
            "examined": asdict(self.examined),
            "findings": [finding.to_json() for finding in self.findings],
        }

    def __str__(self) -> str:
        numbers = ", ".join(f"{self.counts[each]} {each}" for each in SEVERITIES)
        head = f"{self.url}, version {self.version}: {numbers}"
        return "\n".join([head, *(f"  {finding}" for finding in self.findings)])


class Collector:
    """Collects findings, at most MOST_OF_A_RULE per rule."""

    def __init__(self) -> None:
        self.of_rules: Counter[str] = Counter()
        self._kept: dict[Finding, None] = {}

    def take(self, findings: Iterable[Finding]) -> None:
        """Add findings, ignoring duplicates."""
        for finding in findings:
            if finding in self._kept:
                continue
            self.of_rules[finding.rule] += 1
            if self.of_rules[finding.rule] <= MOST_OF_A_RULE:
                self._kept[finding] = None

    def one(self, rule: str, message: str, version: int | None = None, path: str | None = None) -> None:
        """Add one finding."""
        self.take([found(rule, message, version, path)])

    def lower(self, rules: Collection[str], live: Collection[str], vectors: Collection[str]) -> None:
        """Downgrade errors of ``rules`` to warnings if they concern files that are no longer ``live`` or, for rules
        about deletion vectors, files without a live deletion vector (not in ``vectors``). ``live`` and ``vectors``
        contain paths of data files."""

        def is_gone(each: Finding) -> bool:
            place = vectors if each.rule.startswith("vector-") else live
            return each.severity == "error" and each.rule in rules and each.path is not None and each.path not in place

        self._kept = {replace(each, severity="warning") if is_gone(each) else each: None for each in self._kept}

    def has(self, *rules: str) -> bool:
        """Whether any of the given rules was violated."""
        return any(self.of_rules[rule] for rule in rules)

    def sorted(self) -> tuple[Finding, ...]:
        """The findings, sorted by severity, version, rule and path."""

        def order(finding: Finding) -> tuple[int, int, str, str]:
            at = -1 if finding.version is None else finding.version
            return SEVERITIES.index(finding.severity), at, finding.rule, finding.path or ""

        return tuple(sorted(self._kept, key=order))

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.sorted())


def to_sarif(report: CheckReport, tool_version: str) -> dict[str, Any]:
    """The report in SARIF 2.1.0, the format of code scanning tools. Locations are file URIs."""
    levels = {"error": "error", "warning": "warning", "info": "note"}
    ids = sorted({finding.rule for finding in report.findings})
    rules = [
        {
            "id": name,
            "shortDescription": {"text": RULES[name].title},
            "help": {"text": RULES[name].remedy},
            "helpUri": RULES[name].reference,
            "defaultConfiguration": {"level": levels[RULES[name].severity]},
        }
        for name in ids
    ]
    results = [
        _result(report, finding, ids.index(finding.rule), levels[finding.severity]) for finding in report.findings
    ]
    driver = {"name": "deltalog", "version": tool_version, "informationUri": "https://delta.io", "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}],
    }


def _result(report: CheckReport, finding: Finding, index: int, level: str) -> dict[str, Any]:
    text = finding.message if finding.version is None else f"Version {finding.version}: {finding.message}"
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": level,
        "message": {"text": f"{text} {finding.remedy}"},
        "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": _uri(report.url, finding.path or "_delta_log")}}}
        ],
        "properties": {"version": finding.version, "section": RULES[finding.rule].section},
    }


def _uri(table_url: str, path: str) -> str:
    """The URI of a file of a table. ``path``: as spelled in the log, where it is usually percent-encoded and may be
    absolute; it is untrusted. ``table_url``: not percent-encoded."""
    if _SCHEME.match(path):
        return _encoded(path)
    root = f"file://{table_url}" if table_url.startswith("/") else table_url
    if path.startswith("/"):
        return _encoded(f"file://{path}")
    return f"{_encoded(root.replace('%', '%25').rstrip('/'))}/{_encoded(path)}"


def _encoded(uri: str) -> str:
    """Percent-encode what a URI cannot contain, and percent signs that encode nothing."""
    return urllib.parse.quote(_STRAY_PERCENT.sub("%25", uri), safe="%/:@!$&'()*+,;=~", errors="replace")
