"""The timeline page: its data agrees with the results of the library, and no content of the log is executed in the
page."""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import threading
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import DeltaTable, TimestampOutOfRangeError
from deltalog.cli.timeline import write_page
from deltalog.presentation.activity import ACTIVITY, activity
from deltalog.presentation.timeline import embedded, page, page_data, render
from tests.support.cli import MINUTE, START, Cli, Clock, set_file_time

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "tables"
# Text that would end the script element, start a tag or an entity, or break JavaScript.
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> &lt; <!-- ]]> {{data}} "
HOSTILE += "\u2028\u202e\x1b[31m \" ' \\ ${1}"


class Elements(html.parser.HTMLParser):
    """The page as a browser parses it: its elements with their attributes, and the text of its scripts and title."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "title": []}
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag in self.texts:
            self._inside = tag
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data


def data_of(text: str) -> Any:
    return json.loads(Elements(text).texts["script"][0])


def resolved(data: Any, ms: int) -> tuple[int, int] | None:
    """Resolve a timestamp as the page's script does, from the page's data: the version and its time, or None for a
    refusal."""
    found = data["resolution"]
    in_era = data["in_commit_timestamps"]["enabled"] and (found["from_ms"] is None or ms >= found["from_ms"])
    candidates = found["in_commit"] if in_era and found["in_commit"] else found["file"] or found["in_commit"]
    version, time = max((c for c in candidates if c[1] <= ms), default=candidates[0], key=lambda c: c[0])
    latest = data["commits"][0]["version"]
    return None if time > ms or (version == latest and time < ms) else (version, time)


def answered(table: DeltaTable, ms: int) -> tuple[int, int] | None:
    try:
        at = table.version_at(ms)
    except TimestampOutOfRangeError:
        return None
    return at.version, at.timestamp_ms


def assert_page_is_true(table: DeltaTable) -> None:
    data = data_of(page(table).html)
    history = table.history()
    assert data["commits"] == json.loads(json.dumps([entry.to_json() for entry in history]))
    assert data["activity_fields"] == list(ACTIVITY)
    assert data["activity"] == [list(activity(entry.operation_metrics).values()) for entry in history]
    assert data["left_off"] == 0
    snapshot = table.snapshot()
    enablement = snapshot.enablement
    assert data["in_commit_timestamps"] == {
        "enabled": snapshot.in_commit_timestamps_enabled,
        "enablement": enablement and {"version": enablement.version, "timestamp_ms": enablement.timestamp_ms},
    }
    times = {t for e in history for t in (e.timestamp_ms, e.file_modification_time_ms, e.in_commit_timestamp_ms)}
    for time in sorted(t for t in times if t is not None):
        for ms in (time - 3_600_000, time - 1, time, time + 1, time + 3_600_000):
            assert resolved(data, ms) == answered(table, ms), ms


def test_the_page_of_a_table_with_both_eras(late: Path) -> None:
    assert_page_is_true(DeltaTable.open(late))


def test_the_page_of_a_copy(late: Path, tmp_path: Path) -> None:
    """All file times are later than the enablement, so no timestamp resolves to a version before it."""
    shutil.copytree(late, tmp_path / "copy", copy_function=shutil.copyfile)
    assert_page_is_true(DeltaTable.open(tmp_path / "copy"))


def test_the_page_where_file_times_run_back(late: Path) -> None:
    for version in range(5):
        set_file_time(late, version, START - version * MINUTE)
    assert_page_is_true(DeltaTable.open(late))


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_the_page_of_tables_by_delta_spark(name: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    shutil.copytree(FIXTURES / name / "table", table, copy_function=shutil.copyfile)
    for file, ms in json.loads((FIXTURES / name / "mtimes.json").read_text()).items():
        place = table / file if (table / file).exists() else table / "_delta_log" / file
        os.utime(place, ns=(ms * 10**6, ms * 10**6))
    assert_page_is_true(DeltaTable.open(table))


def test_the_newest_commits_only(late: Path) -> None:
    table = DeltaTable.open(late)
    data = page_data(table, 2)
    assert [commit["version"] for commit in data["commits"]] == [4, 3]
    assert data["left_off"] == 3
    assert data["resolution"] == {
        "file": [],
        "in_commit": [[3, START + 3 * MINUTE], [4, START + 4 * MINUTE]],
        "from_ms": START + 2 * MINUTE,
        "cut": True,
    }
    assert page_data(table, 5)["resolution"]["cut"] is False


# ---------------------------------------------------------------------------------------- effects, findings


def effects(table: DeltaTable) -> list[str]:
    return list(reversed(page_data(table)["effects"]))


def test_the_effect_of_each_verb(tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2, 3]})
    table = DeltaTable.create(tmp_path / "t", data.schema)
    table.append(data)
    table.overwrite(data)
    table.delete("id = 1")
    table.update({"id": "id + 1"}, "id = 3")
    table.set_properties({"delta.appendOnly": "false"})
    table.restore(1)
    DeltaTable.create(tmp_path / "with", data.schema, data=data)
    assert effects(table) == ["none", "append", "overwrite", "delete", "change", "none", "overwrite"]
    assert effects(DeltaTable.open(tmp_path / "with")) == ["append"]


def test_findings_are_on_the_page_at_their_commits(cli: Cli, late: Path, tmp_path: Path) -> None:
    commit = late / "_delta_log" / f"{3:020d}.json"
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    del actions[0]["commitInfo"]["inCommitTimestamp"]
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    report = DeltaTable.open(late).check()
    assert cli("timeline", late, "-o", tmp_path / "page.html").status == 0
    shown = data_of((tmp_path / "page.html").read_text())["check"]
    assert shown == json.loads(
        json.dumps(
            {"version": 4, "counts": report.counts, "findings": [finding.to_json() for finding in report.findings]}
        )
    )
    assert ("ict-missing", 3) in {(finding["rule"], finding["version"]) for finding in shown["findings"]}
    assert cli("timeline", late, "-o", tmp_path / "plain.html", "--no-check").status == 0
    assert data_of((tmp_path / "plain.html").read_text())["check"] is None


# --------------------------------------------------------------------------------------------- self-contained


def test_one_file_that_asks_for_nothing(late: Path) -> None:
    text = page(DeltaTable.open(late)).html
    seen = Elements(text)
    tags = [tag for tag, _ in seen.elements]
    assert not set(tags) & {"link", "img", "iframe", "object", "embed", "base", "audio", "video", "source"}
    assert not [a for _, attributes in seen.elements for a in attributes if a in ("src", "href", "srcset", "action")]
    assert not [a for _, attributes in seen.elements for a in attributes if a.startswith("on")]
    assert not re.search(
        r"url\((?!#)|@import|\bfetch\(|XMLHttpRequest|import\(|innerHTML|insertAdjacentHTML|\beval\(", text
    )
    addresses = set(re.findall(r"https?://[^\s\"'`]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}


def test_only_the_own_script_may_run(late: Path) -> None:
    seen = Elements(page(DeltaTable.open(late)).html)
    scripts = [attributes for tag, attributes in seen.elements if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "data"}, {}]
    digest = base64.b64encode(hashlib.sha256(seen.texts["script"][1].encode()).digest()).decode()
    (policy,) = [
        a["content"] for t, a in seen.elements if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "hostile"
    data = pa.table({"a": [1]})
    table = DeltaTable.create(
        path, data.schema, name=HOSTILE, description=HOSTILE, data=data, environment=Clock().environment()
    )
    table.append(data, user_metadata=HOSTILE)
    commit = path / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    actions[0]["commitInfo"].update(
        operation=HOSTILE,
        engineInfo=HOSTILE,
        isolationLevel=HOSTILE,
        operationParameters={HOSTILE: HOSTILE, "__proto__": HOSTILE, "n": {"m": [HOSTILE]}},
        operationMetrics={"numOutputRows": HOSTILE, "numFiles": "1e9", HOSTILE: HOSTILE},
    )
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def test_a_hostile_log_is_data(hostile: Path, late: Path) -> None:
    table = DeltaTable.open(hostile)
    text = page(table).html
    assert "</script><script>alert" not in text and "<img" not in text
    harmless, seen = Elements(page(DeltaTable.open(late)).html), Elements(text)
    assert seen.elements == harmless.elements
    assert seen.texts["script"][1] == harmless.texts["script"][1]
    data = json.loads(seen.texts["script"][0])
    assert data["table"]["name"] == HOSTILE
    assert data["commits"][0] == json.loads(json.dumps(table.history()[0].to_json()))
    assert data["commits"][0]["operation"] == HOSTILE
    (title,) = seen.texts["title"]
    assert title.startswith("</script>") and "\x1b" not in title and "\u202e" not in title


def test_embedded_json() -> None:
    value = {"a": ["</script>", "<!--", "&amp;", "\u2028\ud800", HOSTILE]}
    text = embedded(value)
    assert json.loads(text) == value
    assert text.isascii() and not set(text) & set("<>&\n")


def test_what_is_put_in_is_not_looked_at_again(late: Path) -> None:
    data = page_data(DeltaTable.open(late))
    data["table"]["name"] = "{{script}}{{data}}"
    seen = Elements(render(data))
    assert seen.texts["title"] == ["{{script}}{{data}}: history"]
    assert json.loads(seen.texts["script"][0])["table"]["name"] == "{{script}}{{data}}"


# ------------------------------------------------------------------------------------------------ the command


def test_the_command(cli: Cli, late: Path, tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    ran = cli("timeline", late, "-o", target, "--json")
    facts = json.loads(ran.out)
    assert facts == {"path": str(target), "commits": 5, "size_bytes": target.stat().st_size}
    assert data_of(target.read_text())["commits"][0]["version"] == 4
    again = cli("timeline", late, "--output", target, "--limit", 2)
    assert again.out.startswith(f"2 commits in {target} (")
    assert len(data_of(target.read_text())["commits"]) == 2
    assert [path.name for path in tmp_path.iterdir() if path.name != "late"] == ["page.html"]


def test_standard_output(cli: Cli, late: Path) -> None:
    ran = cli("timeline", late, "-o", "-")
    assert len(data_of(ran.out)["commits"]) == 5


def test_other_files_are_kept(cli: Cli, late: Path, tmp_path: Path) -> None:
    other = tmp_path / "data.csv"
    other.write_text("precious")
    ran = cli("timeline", late, "-o", other)
    assert (ran.status, other.read_text()) == (1, "precious")
    assert "--overwrite" in ran.err
    assert cli("timeline", late, "-o", other, "--overwrite").status == 0
    assert "precious" not in other.read_text()
    assert cli("timeline", late, "-o", tmp_path).status == 1


def test_a_refused_table_leaves_no_page(cli: Cli, tmp_path: Path) -> None:
    assert cli("timeline", tmp_path / "none", "-o", tmp_path / "page.html").status == 1
    assert not (tmp_path / "page.html").exists()


def test_a_page_goes_through_links_and_into_pipes(late: Path, tmp_path: Path) -> None:
    rendered = page(DeltaTable.open(late)).html
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    write_page(tmp_path / "link.html", rendered, overwrite=False)
    assert (tmp_path / "link.html").is_symlink() and (tmp_path / "real.html").read_text() == rendered
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_page(tmp_path / "pipe", rendered, overwrite=True)
    reader.join(10)
    assert read == [rendered] and (tmp_path / "pipe").is_fifo()


# ------------------------------------------------------------------------------------------------------ colours

SURFACES = ("paper", "panel", "grid", "era")
TEXTS = ("ink", "soft", "faint", "accent", "era-ink", "now-ink", "good", "warn", "bad")
_STYLE = (resources.files("deltalog.presentation") / "page" / "timeline.css").read_text(encoding="utf-8")


def themes(style: str) -> dict[str, dict[str, str]]:
    """The colours of each theme, by name. Those that the dark theme does not replace are the same in both."""
    light, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-fA-F]{6})\b", part)) for part in (light, rest.partition("* {")[0])]
    return {"light": found[0], "dark": {**found[0], **found[1]}}


def contrast(one: str, other: str) -> float:
    """Spec: WCAG 2.2, contrast ratio."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [each / 12.92 if each <= 0.03928 else ((each + 0.055) / 1.055) ** 2.4 for each in parts]
        return sum(weight * each for weight, each in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def mixed(colour: str, below: str, part: float) -> str:
    pairs = [(int(colour[k : k + 2], 16), int(below[k : k + 2], 16)) for k in (1, 3, 5)]
    return "#" + "".join(f"{round(top * part + under * (1 - part)):02x}" for top, under in pairs)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_on_every_surface(theme: str) -> None:
    colours = themes(_STYLE)[theme]
    selected = mixed(colours["accent"], colours["panel"], 0.09)
    surfaces = {**{name: colours[name] for name in SURFACES}, "selected": selected}
    found = {(text, name): contrast(colours[text], below) for text in TEXTS for name, below in surfaces.items()}
    for kind, part in (("now-ink", 0.12), ("era-ink", 0.13)):  # badges
        for name, below in surfaces.items():
            found[f"badge {kind}", name] = contrast(colours[kind], mixed(colours[kind], below, part))
    found["tip", ""] = contrast(colours["paper"], colours["ink"])
    found["flag", ""] = contrast(colours["accent-ink"], colours["accent"])
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}
    assert len(found) == len(TEXTS) * 5 + 12


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_stand_out(theme: str) -> None:
    """3:1, as for graphics that carry meaning."""
    colours = themes(_STYLE)[theme]
    marks = [f"op{number}" for number in (0, 2, 4, 5, 6, 7)] + ["bad", "era-line", "faint", "link"]
    ratios = {(mark, below): contrast(colours[mark], colours[below]) for mark in marks for below in ("panel", "era")}
    assert {pair: ratio for pair, ratio in ratios.items() if ratio < 3 and pair != ("link", "era")} == {}


def test_contrast_is_computed_as_wcag_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") < 4.5
    assert mixed("#000000", "#ffffff", 0.5) == "#808080"
