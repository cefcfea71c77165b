"""The timeline pages in a real browser, at two widths and in both themes: no text is cut, covered or pale; the keyboard
works; and a long history draws no more than a short one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TransactionManager, check
from deltalog.presentation.tables_page import page as tables_page
from deltalog.presentation.tables_page import page_data as tables_data
from deltalog.presentation.tables_page import tables_of
from deltalog.presentation.timeline import page, page_data, render
from tests.support.browser import Browser, Tab, assert_readable, assert_readable_everywhere
from tests.support.cli import MINUTE, START, run, set_file_time
from tests.unit.cli.test_timeline import hostile  # noqa: F401 (a fixture)
from tests.unit.cli.test_timeline_tables import bank, cut, instants  # noqa: F401 (a fixture)

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        place = tmp_path / "page.html"
        place.write_text(text)
        return place

    return written


def damaged(table: Path) -> None:
    """Give a table findings of all severities, and file times that run back."""
    commit = table / "_delta_log" / f"{3:020d}.json"
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    del actions[0]["commitInfo"]["inCommitTimestamp"]
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    set_file_time(table, 3, START - 100 * MINUTE)
    set_file_time(table, 4, START + 50_000 * MINUTE)


def test_a_sound_table(browser: Browser, late: Path, write: Write, tmp_path: Path) -> None:
    report = DeltaTable.open(late).check()
    assert report.findings == ()
    with browser.tab() as tab:
        tab.open(write(page(DeltaTable.open(late), None, report).html))
        assert_readable_everywhere(tab, "sound", tmp_path)
        assert "found nothing" in tab.run("document.getElementById('checked').innerText")
        assert tab.run("document.getElementById('checked').getClientRects()[0].height") < 50


def test_findings_long_names_and_large_numbers(browser: Browser, late: Path, write: Write, tmp_path: Path) -> None:
    data = pa.table({"id": range(100_000), "what": ["x"] * 100_000})
    DeltaTable.open(late).overwrite(data, user_metadata="nightly " * 9)
    damaged(late)
    shown = page_data(DeltaTable.open(late), None, check(str(late)))
    shown["commits"][0]["operation"] = "CREATE OR REPLACE TABLE AS SELECT"
    shown["table"]["name"] = "a_table_with_quite_a_long_name_of_the_northern_customers"
    assert len(shown["check"]["findings"]) > 0
    with browser.tab() as tab:
        tab.open(write(render(shown)))
        assert_readable_everywhere(tab, "findings", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("shape", ["one", "off", "hostile", "zoomed", "many"])
def test_other_histories(
    browser: Browser,
    late: Path,
    hostile: Path,  # noqa: F811
    write: Write,
    shape: str,
    tmp_path: Path,
) -> None:
    shown = page_data(DeltaTable.open(hostile if shape == "hostile" else late), 1 if shape == "one" else None)
    if shape == "off":
        shown["in_commit_timestamps"] = {"enabled": False, "enablement": None}
    if shape == "many":
        shown = many(shown, 10_000)
    with browser.tab() as tab:
        tab.open(write(render(shown)))
        assert_readable_everywhere(tab, shape, tmp_path)
        for _ in range(6 if shape == "zoomed" else 0):
            tab.run("document.querySelector('[data-move=in]').click()")
            tab.settle()
            assert_readable(tab.measured(), shape)


# --------------------------------------------------------------------------------------------- rows and commits


ROWS = """[...document.querySelectorAll("tbody tr")].map((row) => {
    const cells = [...row.cells].filter((cell) => cell.getClientRects().length);
    return {
        lines: new Set(cells.map((cell) => Math.round(cell.getBoundingClientRect().top / 8))).size,
        text: row.innerText.replace(/\\s+/g, " "),
        height: row.getBoundingClientRect().height,
    };
})"""


def test_a_commit_is_a_row_of_two_lines_on_a_small_screen(browser: Browser, late: Path, write: Write) -> None:
    with browser.tab(400) as tab:
        tab.open(write(page(DeltaTable.open(late)).html))
        rows = tab.run(ROWS)
        unit = """getComputedStyle(document.querySelector("td[data-column=Rows]"), "::after").content"""
        assert tab.run(unit) == '" rows"'
    assert len(rows) == 5
    assert all(row["lines"] == 2 and row["height"] < 64 for row in rows if "first" not in row["text"]), rows
    assert any("v4" in row["text"] and "WRITE" in row["text"] and "+1 −5" in row["text"] for row in rows)


def test_a_hostile_log_is_text(browser: Browser, hostile: Path, write: Write) -> None:  # noqa: F811
    run("enable-ict", hostile)
    with browser.tab() as tab:
        tab.open(write(page(DeltaTable.open(hostile)).html))
        assert tab.problems() == []
        assert tab.run("[...document.querySelectorAll('tbody tr')].map((row) => row.dataset.version)") == [
            "2",
            "1",
            "0",
        ]
        assert tab.run("[document.images.length, document.scripts.length]") == [0, 2]
        assert "</script><script>alert(1)" in tab.run("document.getElementById('tbody').innerText")


@pytest.mark.long
def test_lanes_fold_and_findings_are_marked(browser: Browser, late: Path, write: Write) -> None:
    for entry in DeltaTable.open(late).history():
        set_file_time(late, entry.version, entry.in_commit_timestamp_ms or entry.file_modification_time_ms)
    with browser.tab() as tab:
        tab.open(write(page(DeltaTable.open(late)).html))
        lanes = "[...document.querySelectorAll('svg .lane')].map((lane) => lane.textContent)"
        assert "Drift" not in tab.run(lanes) and "Commit" in tab.run(lanes)
        tab.run("document.querySelector('#lanes button').click()")
        tab.settle()
        assert {"Drift", "In-commit"} <= set(tab.run(lanes))
        damaged(late)
        report = check(str(late))
        tab.open(write(page(DeltaTable.open(late), None, report).html))
        assert tab.run("document.querySelectorAll('svg .finding.error').length") >= 1
        assert report.findings[0].rule in tab.run("document.getElementById('findings').innerText")


def test_the_keyboard_and_what_a_screen_reader_is_told(browser: Browser, late: Path, write: Write) -> None:
    with browser.tab() as tab:
        tab.open(write(page(DeltaTable.open(late)).html))
        title = "document.getElementById('commit-title').textContent"
        tab.run("document.getElementById('plot').focus()")
        assert tab.run(title).startswith("Version 4")
        for key, version in (("ArrowLeft", 3), ("ArrowLeft", 2), ("ArrowRight", 3), ("Home", 0), ("End", 4)):
            tab.key(key)
            tab.settle()
            assert tab.run(title).startswith(f"Version {version}"), key
        tab.key("+")
        tab.settle()
        assert_named_controls(tab)
        assert tab.run("document.getElementById('commit-title').getAttribute('aria-live')") == "polite"


def assert_named_controls(tab: Tab) -> None:
    """That a screen reader can name everything that can be used."""
    tab.call("Accessibility.enable")
    nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "textbox", "searchbox", "link", "application", "region", "heading")
    used = [node for node in nodes if not node["ignored"] and node["role"]["value"] in roles]
    assert len(used) > 8
    assert [node["role"]["value"] for node in used if not node.get("name", {}).get("value")] == []


def many(shown: Any, number: int) -> Any:
    """The data of a history of ``number`` commits, most of which have both times."""
    base, cells = shown["commits"][0], shown["activity"][0]
    commits = []
    for version in range(number):
        ms = START + version * 97_000 + version % 7 * 1_000
        has_ict = version >= number // 3
        commits.append(
            {
                **base, "version": version, "timestamp_ms": ms, "timestamp": None,
                "file_modification_time_ms": ms + 3_000,
                "in_commit_timestamp_ms": ms if has_ict else None,
                "clock": "in-commit" if has_ict else "file-modification",
                "user_metadata": f"load {version}" if version % 5 == 0 else None,
            }
        )  # fmt: skip
    effects = ("append", "append", "overwrite", "change", "delete", "none")
    enabled_ms = commits[number // 3]["timestamp_ms"]
    return {
        **shown,
        "commits": commits[::-1],
        "activity": [cells] * number,
        "effects": [effects[version % 6] for version in range(number)],
        "in_commit_timestamps": {
            "enabled": True,
            "enablement": {"version": number // 3, "timestamp_ms": enabled_ms},
        },
        "resolution": {
            "file": [[each["version"], each["timestamp_ms"]] for each in commits[: number // 3]],
            "in_commit": [[each["version"], each["timestamp_ms"]] for each in commits[number // 3 :]],
            "from_ms": enabled_ms,
            "cut": False,
        },
    }


# The time of the work of each frame while the pointer moves, in ms, and how much is drawn.
MEASURED = """(async () => {
  const plot = document.getElementById("plot"), box = plot.getBoundingClientRect(), times = [];
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const begun = performance.now();
    setTimeout(() => done(performance.now() - begun), 0);
  }));
  for (let i = 0; i < 30; i++) {
    const at = { clientX: box.left + 100 + i * 30, clientY: box.top + 110, bubbles: true };
    plot.dispatchEvent(new PointerEvent("pointermove", at));
    times.push(await frame());
  }
  times.sort((a, b) => a - b);
  return {
    median_ms: times[15], worst_ms: times[29],
    nodes: document.querySelectorAll("svg *").length, rows: document.querySelectorAll("tbody tr").length,
  };
})()"""


@pytest.mark.long
def test_ten_thousand_commits_draw_no_more_than_one_thousand(
    browser: Browser, late: Path, write: Write, record_property: Callable[[str, object], None]
) -> None:
    """Marks that would lie on each other are one mark, and the table has pages."""
    found = {}
    for number in (1_000, 10_000):
        file = write(render(many(page_data(DeltaTable.open(late)), number)))
        with browser.tab() as tab:
            begun = time.monotonic()
            tab.open(file)
            opened = time.monotonic() - begun
            found[number] = {**tab.run(MEASURED), "opened_s": round(opened, 2)}
    record_property("frames", found)
    assert found[10_000]["rows"] == found[1_000]["rows"] == 25
    assert found[10_000]["nodes"] < 1.3 * found[1_000]["nodes"] < 4_000


# ------------------------------------------------------------------------------------------------ several tables


def test_several_tables(
    browser: Browser,
    bank: TransactionManager,  # noqa: F811
    write: Write,
    tmp_path: Path,
) -> None:
    name = "bank.a_table_with_a_rather_long_name_for_the_customers_of_the_north"
    bank.create_table(name, str(tmp_path / "long"), pa.schema([("id", pa.int64())]))
    with browser.tab() as tab:
        tab.open(write(tables_page("bank.db", list(tables_of(bank))).html))
        assert_readable_everywhere(tab, "tables", tmp_path)


def test_the_script_finds_the_consistent_cuts(browser: Browser, bank: TransactionManager, write: Write) -> None:  # noqa: F811
    tables = list(tables_of(bank))
    data = tables_data("bank", tables)
    with browser.tab() as tab:
        tab.open(write(tables_page("bank", tables).html))
        assert tab.problems() == []
        times = instants(data)
        found = tab.run(
            f"{json.dumps(times)}.map((ms) => window.deltalogTables.cutAt(ms).map((at) => at.version ?? null))"
        )
        names = [table["name"] for table in data["tables"]]
        for ms, versions in zip(times, found, strict=True):
            assert {n: v for n, v in zip(names, versions, strict=True) if v is not None} == cut(data, ms)
        tab.run("document.getElementById('plot').focus()")
        cells = "[...document.querySelectorAll('[data-column=Version]')].map((cell) => cell.textContent)"
        last = tab.run(cells)
        assert last == [f"v{version}" for version in cut(data, times[-1]).values()]
        tab.key("Home")
        tab.settle()
        assert tab.run(cells) == ["v0", "–", "–"]
        tab.key("ArrowRight")
        tab.settle()
        assert tab.run(cells) == ["v0", "–", "v0"]
        assert_named_controls(tab)


@pytest.mark.long
def test_renderings_of_one_page_are_equal(browser: Browser, late: Path, write: Write, tmp_path: Path) -> None:
    """Drawn twice in one run, as pictures; and the themes differ."""
    file = write(page(DeltaTable.open(late)).html)
    pictures = []
    for number, dark in enumerate((False, False, True)):
        with browser.tab(1400, 2000, dark=dark) as tab:
            tab.open(file)
            tab.picture(tmp_path / f"{number}.png")
        pictures.append((tmp_path / f"{number}.png").read_bytes())
    assert pictures[0] == pictures[1] != pictures[2]
