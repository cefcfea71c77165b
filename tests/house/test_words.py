"""Docstrings, comments, messages and pages use plain technical English and the terms of docs/glossary.md.

Each row of ``BANNED`` is a pattern and what to write instead. Only prose is searched: comments and strings of Python
files, and pages without their code.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BANNED = {
    r"(?:some|any|every)(?:body|one)": "the actor: another writer, any process, all callers",
    r"nobody|no one": "the actor: no reader, no other process",
    r"whoever": "the actor: the process that …, the caller that …",
    r"stranger|strangers": "untrusted client, untrusted table",
    r"told": "given, set, reported, recorded",
    r"got on": "made progress, committed",
    r"com(?:es?|ing) (?:by|upon)": "the next process, finds",
    r"came (?:by|upon|between)": "was committed in between",
    r"the same again": "the same result",
    r"so many|so much": "the number, the amount: at most 64 calls",
    r"is no error|are no errors?": "succeeds, is idempotent, is ignored",
    r"is a must|a must": "is required",
    r"pass(?:ed|es|ing) over": "ignored, skipped",
    r"look(?:s|ed)? (?:at|behind|upon)|a look at|the look": "checks, reads, inspects",
    r"(?:is|was|are|were|be|been|has|have|had) seen": "was read, was observed, was detected",
    r"(?:is|was|are|were|be|been) asked(?: for)?|asked for": "requested, queried, called",
    r"for ever|as ever": "permanently, without limit, always",
    r"one likes": "as needed, any",
    r"believed?": "trusted, used, checked",
    r"taken for": "treated as",
    r"held (?:to|against)": "checked against",
    r"fates?": "decision",
    r"(?:has|have) not(?=[.,;:)]|$)": "does not have, lacks",
    r"what others did": "concurrent commits",
    r"in one's head|by heart": "in memory",
    r"(?:is|are|was|were) (?:of one's|of a user's) own": "custom",
}
PATTERN = re.compile(
    "|".join(f"(?P<w{n}>\\b(?:{pattern})(?!\\w))".replace(" ", r"\s+") for n, pattern in enumerate(BANNED)),
    re.I | re.M,
)

# Directories and modules whose prose is still to be rewritten.
UNREAD: set[str] = set()

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = re.compile(r"^```.*?^```[ \t]*$|`[^`\n]*`|\]\([^)]*\)", re.M | re.S)
PACKAGES = ("deltalog", "spark_ext", "tests/support")


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if not _is_unread(path)]


def _is_unread(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix()
    return any(name == unread or name.startswith(f"{unread}/") for unread in UNREAD)


def prose_of_module(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each comment, each string, each constant part of an f-string."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"``[^`]*``", "", node.value)


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    text = CODE.sub(lambda code: "\n" * code[0].count("\n"), text)
    yield from enumerate(text.split("\n"), start=1)


def banned(prose: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f"{line + text.count(chr(10), 0, match.start())}: {match[0]!r}, better: {list(BANNED.values())[_number(match)]}"
        for line, text in prose
        for match in PATTERN.finditer(text)
    ]


def _number(match: re.Match[str]) -> int:
    return int(str(match.lastgroup)[1:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_words_of_pages(path: Path) -> None:
    assert _is_unread(path) or banned(prose_of_page(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_words_of_modules(package: str) -> None:
    findings = {
        path.relative_to(ROOT).as_posix(): words
        for path in sources()
        if path.is_relative_to(ROOT / package) and (words := banned(prose_of_module(path.read_text(encoding="utf-8"))))
    }
    assert findings == {}, "\n".join(f"{name}:{word}" for name, words in findings.items() for word in words)


def test_the_search_finds_words() -> None:
    source = 'def f(name: str) -> str:\n    """What ``told`` says."""\n    # Nobody\n    return f"{name} was told"\n'
    assert [finding.split(":")[0] for finding in banned(prose_of_module(source))] == ["3", "4"]
    assert banned(prose_of_page("Fine.\n```sh\nnobody\n```\nIs `told` by whoever.\n"))[0].startswith("5: 'whoever'")


def test_every_banned_word_is_searched_for() -> None:
    for pattern in BANNED:
        assert PATTERN.groupindex[f"w{list(BANNED).index(pattern)}"]


def test_what_is_unread_exists() -> None:
    assert [name for name in UNREAD if not (ROOT / name).exists()] == []
