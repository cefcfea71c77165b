"""The site builds without a warning and without a network, and has a place for everything that is public.

The build itself checks every link and every anchor, and fails if one leads nowhere, or if a page is not in the
navigation.
"""

from __future__ import annotations

import functools
import html
import importlib
import importlib.util
import inspect
import os
import re
import runpy
import subprocess
import sys
import urllib.parse
from pathlib import Path

import pytest

import deltalog
from deltalog.conformance import AREAS, all_cases
from deltalog.doctor.rules import RULES
from deltalog.storage.dynamodb import client
from deltalog.storage.s3 import settings
from tests.support.site import commands, errors_page, properties, reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: The pages that say how something is done.
TASKS = [page for folder in ("start", "how-to") for page in sorted((DOCS / folder).glob("*.md"))]
MOST_WORDS = 150
CODE = re.compile(r'^    code(?:: [\w\[\]]+)? = "([A-Z_]+)"$', re.M)
HREF = re.compile(r"""\bhref=["']?([^"'\s>]+)""")
NEEDED = ("mkdocs", "material", "mkdocstrings", "mkdocstrings_handlers")
#: Attributes of elements by which a browser loads something.
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\s\"'>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; the extra docs needs Python 3.11")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)],
        cwd=ROOT, capture_output=True, text=True, timeout=500, check=False,
        # Every request to another machine would fail.
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    assert "WARNING" not in done.stderr
    return place


def test_it_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    loaded = {page.name: found for page in pages if (found := LOADED.findall(page.read_text(encoding="utf-8")))}
    assert {name: urls for name, urls in loaded.items() if any("canonical" not in url for url in urls)} == {}
    assert "https://" not in " ".join(re.findall(r"url\([^)]*\)", (site / "assets/site.css").read_text()))


def test_it_can_be_searched_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = ") and "in-commit timestamps" in index
    assert (site / "assets" / "iframe-worker.js").exists()


def test_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    """Also those that the theme and mkdocstrings make, which the build does not check."""
    wrong, seen = list[str](), 0
    for page in site.rglob("*.html"):
        for link in set(HREF.findall(page.read_text(encoding="utf-8"))):
            path, _, anchor = html.unescape(link).partition("#")
            if re.match(r"[a-z]+:", path) or page.name == "404.html":
                continue
            seen += 1
            target = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.exists() or (anchor and urllib.parse.unquote(anchor) not in anchors(target)):
                wrong.append(f"{page.relative_to(site)}: {link}")
    assert seen > 5000
    assert wrong == []


def test_a_long_signature_has_a_line_for_each_parameter() -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers")
    hooks = runpy.run_path(str(ROOT / "scripts" / "site_hooks.py"))
    split = hooks["one_parameter_a_line"]
    code = "def read(where: dict[str, int] = {}, *, at: snapshots.Snapshot | pa.Table, sep=', (') -> list[int]: pass"
    assert split(code, 200) == code.replace("snapshots.", "")
    assert split(code, 40).splitlines() == [
        "def read(",
        "    where: dict[str, int] = {},",
        "    *,",
        "    at: Snapshot | pa.Table,",
        "    sep=', (',",
        ") -> list[int]: pass",
    ]
    assert split("def read() -> None: pass", 10) == "def read() -> None: pass"


# ------------------------------------------------------------------------------------------- what has a place


@functools.cache
def anchors(page: Path) -> frozenset[str]:
    """The ids on a page of the site."""
    return frozenset(re.findall(r"""\bid=["']?([^"'\s>]+)""", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [*reference.MODULES, "deltalog.errors"])
def test_every_public_name_has_a_place(site: Path, name: str) -> None:
    if name == "spark_ext":
        pytest.importorskip("pyspark")
    module = importlib.import_module(name)
    if name == "deltalog.errors":
        named = [each.__name__.lower() for each in errors_page.classes()]
        assert [each for each in named if each not in anchors(site / "errors.html")] == []
        return
    shown, errors, modules = reference.names_of(module)
    own = reference.OWN_PAGES.get(name, ())
    for each in shown:
        page = site / "reference" / (f"{name}.{each}.html" if each in own else f"{name}.html")
        assert f"{name}.{each}" in anchors(page), f"{name}.{each} is not on {page.name}"
    assert {each.lower() for each in errors} <= anchors(site / "errors.html")
    assert all((site / "reference" / f"{name}.{each}.html").exists() for each in modules if each != "errors")
    assert len(shown) + len(errors) + len(modules) == len(module.__all__)


def test_every_method_of_the_most_used_classes_has_a_place(site: Path) -> None:
    for kind in (deltalog.DeltaTable, deltalog.TransactionManager):
        name = f"deltalog.{kind.__name__}"
        members = [each for each in vars(kind) if not each.startswith("_")]
        assert len(members) > 20
        found = anchors(site / "reference" / f"{name}.html")
        assert [each for each in members if f"{name}.{each}" not in found] == []


def test_the_pages_of_the_reference_are_current() -> None:
    pytest.importorskip("pyspark")
    stored = {page.name: page.read_text(encoding="utf-8") for page in reference.FOLDER.glob("*.md")}
    assert stored == reference.pages(), "python -m tests.support.site.reference writes the pages"


def test_the_page_of_commands_is_current() -> None:
    assert commands.PAGE.read_text(encoding="utf-8") == commands.text(), "python -m tests.support.site.commands"
    listed = [name for name, _ in commands.commands()]
    assert len(listed) > 40 and {"info", "tables list", "txn start", "serve"} <= set(listed)


def test_every_command_and_option_has_a_place(site: Path) -> None:
    page = (site / "commands.html").read_text(encoding="utf-8")
    for name, command in commands.commands():
        assert name.replace(" ", "-") in anchors(site / "commands.html")
        for option in commands.options(command):
            assert all(each in page for each in option.opts), (name, option.opts)


def test_the_page_of_table_properties_is_current() -> None:
    assert properties.PAGE.read_text(encoding="utf-8") == properties.text(), "python -m tests.support.site.properties"


def test_every_error_has_a_remedy_and_the_message_of_a_real_call() -> None:
    assert {each.__name__ for each in errors_page.classes()} == set(errors_page.REMEDIES)
    assert errors_page.without_example() == []


def test_every_code_has_a_place() -> None:
    text = errors_page.PAGE.read_text(encoding="utf-8")
    sources = [path for folder in ("deltalog", "spark_ext") for path in (ROOT / folder).rglob("*.py")]
    codes = {code for path in sources for code in CODE.findall(path.read_text(encoding="utf-8"))}
    assert len(codes) > 75 and "SPARK_JOB_FAILED" in codes and "CALL" not in codes
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []


def test_the_page_of_errors_shows_what_the_calls_raise() -> None:
    for needed in ("boto3", "fsspec", "moto"):
        pytest.importorskip(needed)
    assert errors_page.PAGE.read_text(encoding="utf-8") == errors_page.text(), (
        "python -m tests.support.site.errors_page"
    )


def test_the_errors_of_spark_are_those_of_the_package() -> None:
    pytest.importorskip("pyspark")
    spark_ext = importlib.import_module("spark_ext")
    values = [getattr(spark_ext, name) for name in spark_ext.__all__]
    kinds = [each for each in values if inspect.isclass(each) and issubclass(each, deltalog.DeltaLogError)]
    assert {(name, code) for name, code, _, _ in errors_page.SPARK_ERRORS} == {(e.__name__, e.code) for e in kinds}


def test_every_option_of_spark_has_a_place() -> None:
    pytest.importorskip("pyspark")
    read, write, stream = (
        importlib.import_module(f"spark_ext.{name}")
        for name in ("reading.reader", "writing.write_options", "stream.options")
    )
    named = {*read._OPTIONS.values(), *write._OPTIONS.values()}
    named |= {*stream._READING, *stream._WRITING, *stream._BATCH, *stream._SHARED} - {"path"}
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in ("spark-reference.md", "streaming.md"))
    assert len(named) > 30
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", text)] == []


def test_every_storage_option_has_a_place() -> None:
    text = (DOCS / "stores.md").read_text(encoding="utf-8") + (DOCS / "stores-dynamodb.md").read_text(encoding="utf-8")
    named = settings._OPTIONS | client.OPTIONS
    assert len(named) > 10
    assert [name for name in sorted(named) if not re.search(rf"\b{name}\b", text)] == []


def test_every_rule_of_the_doctor_and_every_section_of_the_kit_has_a_place(site: Path) -> None:
    page = (site / "doctor.html").read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"<code>{rule}</code>" not in page] == []
    cases = (site / "conformance-cases.html").read_text(encoding="utf-8")
    assert [area for area in AREAS if f"area {area}" not in cases] == []
    assert [case.id for case in all_cases() if f"case-{case.id}" not in anchors(site / "conformance-cases.html")] == []


# ------------------------------------------------------------------------------------------------ pages by task


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.stem)
def test_a_page_about_a_task_begins_with_code(page: Path) -> None:
    """At most a screen of prose comes before the first block of code, and there is one."""
    before, fence, _ = page.read_text(encoding="utf-8").partition("\n```")
    assert fence, f"{page.name} has no code"
    assert len(before.split()) <= MOST_WORDS, f"{page.name}: {len(before.split())} words before the first code"
