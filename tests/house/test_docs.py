"""The examples in README.md and docs/ run without errors.

Code blocks marked ``python`` are executed: those of one page in order, in one namespace and in a temporary directory.
Blocks marked ``python no-run`` are skipped. Blocks marked ``python spark`` are executed by the Spark tests, because
this module starts no JVM. On the pages in docs/start and docs/how-to, the commands run too, and the output of both is
compared with the page: tests/support/pages.py.
"""

from __future__ import annotations

import datetime
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.pages import FENCE

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TASKS = [page for page in PAGES if page.parent.name in pages.FOLDERS]
# Pages with several commands or an S3 service take seconds each; the tests of the command line run the same commands.
CASES = [pytest.param(page, marks=[pytest.mark.long] if pages.is_slow(page) else []) for page in TASKS]
MARKS = {"", "no-run", "spark"}
LANGUAGES = {"python", "console", "sh", "text", "sql", "toml", "csv", "json", "ini", "yaml"}
SPARK = re.compile(r"\b(pyspark|spark_ext|SparkSession|spark\.)")


ROW = re.compile(r"^\s*\|.*\|\s*$")
# The cell of a Markdown table ends at a bar that is neither escaped nor in code.
CELL = re.compile(r"(?:\\.|`[^`]*`|[^|\\])*")
# Pages that are written by programs, in which the same description may stand for several cases.
GENERATED = {
    f"docs/{name}.md"
    for name in (
        "authorisation-matrix", "commands", "conformance-cases", "conformance-matrix", "doctor", "feature-matrix",
        "protocol-coverage", "spark-parity", "spark-versions",
    )
}  # fmt: skip
REGISTRIES = re.compile(
    r"https?://(?:[\w.-]+\.)?(?:pypi\.org|pythonhosted\.org|npmjs\.com|crates\.io|mvnrepository\.com)\b[^\s)>`]*"
)


def fences(page: Path) -> list[tuple[int, str, str]]:
    """For each Python code block: its line number, the word after "python" in its opening fence, and its text."""
    text = page.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start()) + 2, match[2].strip(), match[3])
        for match in FENCE.finditer(text)
        if match[1] == "python"
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in TASKS], ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    # Blank lines are added so that tracebacks show the line numbers of the page.
    source, line = "", 1
    for start, mark, text in fences(page):
        if mark or SPARK.search(text):
            continue
        source += "\n" * (start - line) + text
        line = start + text.count("\n")
    if not source:
        return
    program = tmp_path / f"{page.stem}.py"
    program.write_text(source, encoding="utf-8")
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", str(program)],
        cwd=place, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{page.name}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"


@pytest.mark.parametrize("page", CASES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_examples_and_commands_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if missing := [name for name in pages.programs(page) if shutil.which(name) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not pages.needs_s3(page):
        done = pages.run(page, tmp_path)
    else:
        for name in ("moto", "s3fs"):
            pytest.importorskip(name)
        server = request.getfixturevalue("moto")
        server.bucket("lake")
        done = pages.run(page, tmp_path, server.port, server.environment())
    assert done.returncode == 0, f"{page.name}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"


@pytest.mark.parametrize("page", TASKS, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_a_task_begins_with_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# \S.*\n\n", text), f"{page.name} has no title"
    found = pages.blocks(page)
    assert len(found) >= 2, f"{page.name} has {len(found)} blocks of code"
    before = re.sub(r"!\[[^]]*\]\([^)]*\)", "", text.partition("\n```")[0]).split()
    assert len(before) <= 120, f"{page.name}: {len(before)} words before the first code"
    for block in found:
        where = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{where}: {block.language!r}"
        if block.language in ("console", "sh"):
            assert not block.mark or re.fullmatch(r"no-run \w.*|file=\S+", block.mark), where
        if block.language == "console":
            assert pages.commands(block), where
        if block.language == "text":
            assert block.follows in ("python", "python spark"), f"{where}: output follows the Python that prints it"


def test_output_differs_in_what_a_page_says_and_not_in_what_a_run_makes_up() -> None:
    assert pages.differs(["Version  3  2026-11-20T10:00:00Z"], ["Version 3 2027-01-01T00:00:00.123Z"]) is None
    assert pages.differs(["3 rows", "…", "end"], ["3 rows", "a", "b", "end"]) is None
    assert pages.differs(["in …, at /data/t"], ["in 0.3 seconds, at /tmp/x/t"], "/tmp/x") is None
    assert pages.differs(["3 rows"], ["4 rows"]) is not None
    assert pages.differs(["3 rows"], ["3 rows", "a warning"]) is not None
    assert pages.differs([], ["a warning"]) is not None


def test_a_page_fails_if_a_command_fails_or_prints_something_else(tmp_path: Path) -> None:
    texts = {
        "right": "```console\n$ echo a; false\na\n$ echo $?\n1\n```\n```python\nprint(1)\n```\n```text\n1\n```\n",
        "status": "```console\n$ false\n```\n",
        "output": "```console\n$ echo a\nb\n```\n",
        "printed": "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "silent": "```python\nprint(1)\n```\n\n```text\n1\n2\n```\n",
    }
    for name, text in texts.items():
        page = tmp_path / f"{name}.md"
        page.write_text(f"# Title\n\n{text}")
        (tmp_path / name).mkdir()
        done = pages.run(page, tmp_path / name)
        assert (done.returncode == 0) is (name == "right"), (name, done.stderr)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_row_of_a_table_has_the_cells_of_its_head(page: Path) -> None:
    text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), page.read_text(encoding="utf-8"))
    expected = None
    for number, line in enumerate(text.split("\n"), start=1):
        if not ROW.match(line):
            expected = None
            continue
        cells = len(CELL.sub("", line.strip())) - 1
        expected = expected or cells
        assert cells == expected, f"{page.name}:{number}: {cells} cells in a table of {expected}: {line[:100]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_time_in_milliseconds_is_the_date_beside_it(page: Path) -> None:
    """The comparison of output ignores both, because each run makes up others."""
    for number, date in re.findall(r"(\d{13}) ms \((\d{4}-\d\d-\d\dT[\d:.]+)Z\)", page.read_text(encoding="utf-8")):
        at = datetime.datetime.fromisoformat(f"{date}+00:00")
        assert round(at.timestamp() * 1000) == int(number), f"{page.name}: {number} ms is not {date}Z"


def test_links_lead_to_projects_and_not_to_package_registries() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    assert {page.name: found for page in pages if (found := REGISTRIES.findall(page.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_marks_are_known_and_every_example_is_python(page: Path) -> None:
    for start, mark, text in fences(page):
        is_known = mark in MARKS or (page in TASKS and mark.startswith("file="))
        assert is_known, f"{page.name}:{start}: the fence mark {mark!r} is not one of {sorted(MARKS)}"
        if not mark:
            assert not SPARK.search(text), f"{page.name}:{start}: an example with Spark is marked `python spark`"
        compile(text, f"{page.name}:{start}", "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_links_to_the_pages_that_it_names() -> None:
    """The README is also the package's page on an index, where a link to a file leads to the file of the release, and
    the name of a file leads nowhere."""
    text = FENCE.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\(\s*([^)\s]+)", text)
    assert "docs/architecture.md" in links
    assert [path for path in re.findall(r"`((?:[\w-]+/)*[\w-]+\.md)`", text) if (ROOT / path).exists()] == []


def sentences(text: str) -> set[str]:
    """The sentences of at least 8 words in a page, without code blocks, links and case. A cell of a table ends a
    sentence."""
    text = FENCE.sub("\n\n", text)
    found = set()
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.)\s)|\|", text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
        for sentence in re.split(r"(?<=[.:;?!])\s+", re.sub(r"^(?:[-*#]+|\d+\.)\s+", "", plain)):
            if len(sentence.split()) >= 8:
                found.add(sentence.rstrip(" .:;").lower())
    return found


def test_no_sentence_stands_on_two_pages() -> None:
    """Of two equal sentences, one becomes wrong when the other is changed: keep it where a reader looks, and link."""
    pages: dict[str, list[str]] = {}
    for page in [*PAGES, *(ROOT / name for name in ("SECURITY.md", "CONTRIBUTING.md"))]:
        name = page.relative_to(ROOT).as_posix()
        text = page.read_text(encoding="utf-8")
        if name not in GENERATED and "<!-- written by python" not in text and not name.startswith("docs/conformance/"):
            for sentence in sentences(text):
                pages.setdefault(sentence, []).append(name)
    assert {sentence: found for sentence, found in pages.items() if len(found) > 1} == {}


def test_sentences_are_found_in_paragraphs_lists_and_tables() -> None:
    one = "this is a sentence of eight words exactly"
    text = f"A heading\n\n{one.capitalize()}. Short.\n\n- [{one}](there.md#here)\n- more\n\n| {one} | cell |\n"
    assert sentences(text) == {one}
    assert sentences(f"```\n{one}\n```\n") == set()


def test_some_example_runs() -> None:
    """The test's regular expression finds the examples in the documentation pages."""
    assert sum(1 for page in PAGES for _, mark, _ in fences(page) if not mark) >= 3
