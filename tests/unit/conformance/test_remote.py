"""Engines in processes of their own: the line protocol, processes that hang, die, or answer anything, and adapters that
do not work, which end the run."""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltalog import CallError
from deltalog.conformance import (
    AdapterError,
    Case,
    Engine,
    NotSupported,
    RemoteEngine,
    all_cases,
    line_protocol,
    line_server,
    load_engine,
    run,
    run_case,
    self_check,
    start_engine,
)
from deltalog.conformance.case import CATALOG_MANAGED, Changes, LatestVersion, MayRefuse, Refused, Rows
from deltalog.conformance.cases.common import Timeline, ids
from deltalog.conformance.engines.deltalog import DeltalogEngine
from deltalog.conformance.remote import EngineFailure, EngineGone, EngineRefusal, Launch
from tests.support.conformance import line_programs
from tests.support.conformance.awkward import OnlyVersions

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = line_programs.__file__
LATE = {case.id: case for case in all_cases() if case.id.startswith("ict-late-")}


def program(way: str, limit_seconds: float = 20, **more: Any) -> RemoteEngine:
    """The program with the given faults. ``-I -S``: starts faster."""
    return RemoteEngine(Launch(way, [sys.executable, "-I", "-S", PROGRAM, way], "here"), limit_seconds, **more)


@pytest.fixture
def _in_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def awkward() -> Iterator[RemoteEngine]:
    place = os.getcwd()
    os.chdir(ROOT)
    try:
        engine = start_engine("tests.support.conformance.awkward:Awkward", limit_seconds=60)
    finally:
        os.chdir(place)
    with engine:
        yield engine


# ------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("way", line_programs.ANSWERS)
def test_an_answer_that_is_none_is_a_fault_of_the_adapter(way: str) -> None:
    """It ends the run, with a message that is short and can be printed."""
    case = Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), (LatestVersion(1),))
    rows = Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), (Rows(ids(1)),))
    with program(way) as engine, pytest.raises(AdapterError, match=f"adapter of {way} does not keep") as caught:
        list(run(engine, [rows if way.startswith("rows") else case]))
    assert isinstance(caught.value, CallError) and len(caught.value.message) < 1000
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("way", line_programs.ROWS)
def test_rows_that_cannot_be_read_fail_the_case(way: str, tmp_path: Path) -> None:
    case = Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), (Rows(ids(1)),))
    with program(way) as engine:
        outcome = run_case(engine, case, tmp_path)
    assert outcome.outcome == "failed" and "UnreadableRows" in (outcome.reason or "")


def test_more_rows_than_are_read_fail_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalog.conformance.remote._MAX_ROWS_BYTES", 2)
    with program("json-without-rows") as engine, pytest.raises(EngineFailure, match="take 3 bytes") as caught:
        engine.rows("x")
    assert caught.value.kind == "TooManyRows"


@pytest.mark.parametrize("way", line_programs.HELLOS)
def test_a_process_that_does_not_greet_is_a_fault_of_the_adapter(way: str) -> None:
    expected = {"hello-error": "cannot run here: there is no Java here", "hello-missing": "exited with status 3"}
    with pytest.raises(AdapterError, match=expected.get(way, "does not keep to the line protocol")), program(way):
        pass


def test_a_process_that_does_not_start_in_time_is_killed() -> None:
    launch = Launch("slow", [sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"], "here")
    with pytest.raises(AdapterError, match=r"did not start within 0\.2 seconds"):
        RemoteEngine(launch, start_seconds=0.2).__enter__()


def test_a_program_that_is_not_there_is_a_fault_of_the_adapter() -> None:
    with pytest.raises(AdapterError, match="cannot be started"), start_engine("command:/no/such/program now"):
        pass


def test_the_last_words_of_a_process_that_does_not_start_are_told() -> None:
    launch = Launch("sick", [sys.executable, "-I", "-S", "-c", "raise SystemExit('the library is missing')"], "here")
    with pytest.raises(AdapterError, match=r"status 1 before it was ready\. Its last words: the library is missing"):
        RemoteEngine(launch).__enter__()


def test_an_answer_out_of_turn_is_noticed() -> None:
    with program("twice") as engine:
        assert engine.latest_version("x") == 0
        with pytest.raises(AdapterError, match="the answer to request 2 has another id"):
            engine.latest_version("x")


def test_an_interrupted_call_leaves_no_answer_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(self: Any, until: float) -> bytes:
        raise KeyboardInterrupt

    with program("twice") as engine:
        with monkeypatch.context() as patch:
            patch.setattr("deltalog.conformance.remote._Process.line", interrupt)
            with pytest.raises(KeyboardInterrupt):
                engine.latest_version("x")
        assert engine.latest_version("x") == 0


# ---------------------------------------------------------------------------------- processes that end or hang


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("hangs", "no outcome within 1 seconds"),
        ("dies", "exited with status 7"),
        ("closes-its-output", "exited with status -9"),
    ],
)
def test_a_process_that_hangs_or_dies_fails_the_case_and_is_started_again(
    way: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "closes-its-output":
        monkeypatch.setattr("deltalog.conformance.remote._EXIT_SECONDS", 0.1)
    case = Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), (LatestVersion(1),))
    with program(way, limit_seconds=1) as engine:
        outcomes = list(run(engine, [case, case]))
    assert [outcome.outcome for outcome in outcomes] == ["failed", "failed"]
    assert all(f"step 1, latest-version: {'no' if way == 'hangs' else 'the'}" in str(each.reason) for each in outcomes)
    assert all(reason in str(each.reason) for each in outcomes)


@pytest.mark.usefixtures("_in_checkout")
def test_other_cases_are_not_affected() -> None:
    cases = [LATE[f"ict-late-exact-{each}"] for each in ("enablement", "earlier", "later")]
    with start_engine("tests.support.conformance.awkward:Awkward", limit_seconds=4) as engine:
        outcomes = list(run(engine, [*cases, cases[0]]))
    assert ["rows are" in str(each.reason) for each in outcomes] == [True, False, False, True]
    assert "no outcome within 4 seconds" in str(outcomes[1].reason) and "status 7" in str(outcomes[2].reason)


def test_the_children_of_a_process_are_killed_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(['sleep', '3600'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        """print('{"protocol": 1, "engine": "parent", "version": "1"}', flush=True)\n"""
        "sys.stdin.readline(); time.sleep(3600)\n"
    )
    launch = Launch("parent", [sys.executable, "-I", "-S", "-c", code], "here")
    with RemoteEngine(launch, 0.2) as engine, pytest.raises(EngineGone, match=r"no outcome within 0\.2 seconds"):
        engine.latest_version("x")
    child = Path("/proc", (tmp_path / "pid").read_text())
    until = time.monotonic() + 20
    while child.exists() and "\nState:\tZ" not in (child / "status").read_text() and time.monotonic() < until:
        time.sleep(0.01)
    assert not child.exists() or "\nState:\tZ" in (child / "status").read_text()


def test_a_transaction_of_a_process_that_has_ended_is_gone(awkward: RemoteEngine) -> None:
    begun = awkward.begin("x")
    with pytest.raises(EngineGone):
        awkward.rows("die")
    with pytest.raises(EngineGone, match="which had an open transaction, has ended"):
        begun.append("x", pa.table({"id": [1]}))
    assert awkward.latest_version("x") == 5
    with pytest.raises(EngineGone):
        begun.append("x", pa.table({"id": [1]}))


def test_what_the_engine_writes_to_standard_error_can_be_kept(tmp_path: Path) -> None:
    code = """import sys; print('{"protocol": 1, "engine": "e"}', flush=True); print("why", file=sys.stderr)"""
    launch = Launch("e", [sys.executable, "-I", "-S", "-c", code], "here")
    with RemoteEngine(launch, log=tmp_path / "log") as engine, pytest.raises(EngineGone):
        engine.latest_version("x")
    assert (tmp_path / "log").read_text() == "why\n"


# ---------------------------------------------------------------------------------------------- the line server


def test_an_adapter_is_told_by_its_hello(awkward: RemoteEngine) -> None:
    assert (awkward.name, awkward.version, awkward.lacks) == ("awkward", "7", "lacks this")
    assert awkward.environment == {
        "python": platform.python_version(), "pyarrow": pa.__version__, "pytest": pytest.__version__,
    }  # fmt: skip
    assert awkward.calls == ("rows", "latest_version", "history", "begin")


def test_rows_arrive_in_every_form(awkward: RemoteEngine) -> None:
    """Noise on standard output does not mix with the answers."""
    times = {"day": "2025-01-15", "at": "2025-01-15T12:00:00.123456Z"}
    assert awkward.rows("list") == [{"id": 1, **times, "map": [["a", None], ["b", "1.5"]], "bytes": "00ff"}]
    assert awkward.rows("empty") == []
    assert awkward.rows("parquet").to_pylist() == [{"id": 1}, {"id": 2}]
    with start_engine("deltalog") as engine:
        self_check(engine)


def test_values_keep_their_types(awkward: RemoteEngine) -> None:
    assert awkward.history("x") == {0: 1_736_942_400_000, 12: None}
    assert awkward.latest_version("x") == 5


@pytest.mark.parametrize("path", ["half", "true", "text"])
def test_a_value_of_another_type_is_a_fault_of_the_adapter(awkward: RemoteEngine, path: str) -> None:
    with pytest.raises(AdapterError, match="no answer to latest_version"):
        awkward.latest_version(path)


def test_errors_keep_class_and_message(awkward: RemoteEngine) -> None:
    with pytest.raises(EngineRefusal) as refused:
        awkward.rows("refuse")
    assert refused.value.kind == "ValueError" and len(str(refused.value)) == line_protocol.MAX_TEXT
    for path, kind, message in [
        ("fail", "KeyError", "'key'"),
        ("panic", "PanicException", "index out of bounds"),
        ("no-message", "Speechless", "cannot be shown: RuntimeError"),
        ("object", "TypeError", "is not allowed"),
        ("nonsense", "TypeError", ""),
    ]:
        with pytest.raises(EngineFailure) as failed:
            awkward.rows(path)
        assert failed.value.kind == kind and message in str(failed.value)
    with pytest.raises(NotSupported, match="such paths"):
        awkward.rows("not-supported")
    with pytest.raises(NotSupported, match="checkpoint"):
        awkward.checkpoint("x")


def test_an_engine_that_leaves_is_gone(awkward: RemoteEngine) -> None:
    with pytest.raises(EngineGone, match="status 1"):
        awkward.rows("exit")


def test_a_transaction_is_refused_as_the_engine_refuses(awkward: RemoteEngine) -> None:
    begun = awkward.begin("x")
    with pytest.raises(EngineRefusal, match=r"\[{'id': 1, 'p': 'ä'}\]"):
        begun.append("refuse", pa.table({"id": [1], "p": ["ä"]}))
    with pytest.raises(EngineFailure):
        begun.append("fail", pa.table({"id": [1]}))
    with pytest.raises(NotSupported):
        begun.rows("x")


def test_every_call_of_an_engine_is_a_call_of_the_protocol() -> None:
    methods = {name for name, member in vars(Engine).items() if callable(member) and not name.startswith("_")}
    assert set(line_protocol.CALLS) == methods
    assert {line_protocol.CALLS[name] for name in ("rows", "changes")} == {line_protocol.ROWS}
    assert {line_protocol.CALLS[name] for name in ("begin", "of_catalog")} == {line_protocol.ENGINE}
    assert set(line_protocol.RESULTS.values()) == {"Any", "Engine", "int", "None", "Mapping[int, int | None]"}


def test_an_adapter_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    """In an environment without pyarrow and msgspec, and without deltalog on the path."""
    (tmp_path / "adapters").mkdir()
    text = (ROOT / "tests/support/conformance/awkward.py").read_text(encoding="utf-8")
    (tmp_path / "adapters" / "foreign.py").write_text(text + _FOREIGN, encoding="utf-8")
    bootstrap = str(Path(line_server.__file__).with_name("bootstrap.py"))
    command = [sys.executable, "-I", "-S", bootstrap, "foreign:Foreign", "--path", str(tmp_path / "adapters")]
    with RemoteEngine(Launch("foreign", command, "elsewhere")) as engine:
        self_check(engine)
        assert engine.environment.keys() == {"python"}
        [row] = engine.rows("imports")
    assert row["pyarrow"] is False and row["msgspec"] is False and row["case"] is False
    # The modules that an adapter may rely on.
    assert set(row["own"]) == {
        "deltalog", "deltalog.conformance", "deltalog.conformance.engine", "deltalog.conformance.line_protocol",
        "deltalog.conformance.line_server", "deltalog.conformance.values", "deltalog.conformance.variant_bytes",
        "deltalog.errors", "deltalog.lazy_names", "deltalog.version",
    }  # fmt: skip


_FOREIGN = """

import importlib.util

class Foreign(Awkward):
    def rows(self, path, version=None, timestamp_ms=None):
        if path != "imports":
            return super().rows(path, version, timestamp_ms)
        own = sorted(name for name in sys.modules if name.split(".")[0] == "deltalog")
        found = {name: importlib.util.find_spec(name) is not None for name in ("pyarrow", "msgspec", "case")}
        return [{**found, "own": own}]
"""


# -------------------------------------------------------------------------- the same outcomes as in this process


def test_deltalog_has_the_same_outcomes_in_both_places(is_long: bool) -> None:
    cases = [case for case in all_cases() if case.area != CATALOG_MANAGED][:: 1 if is_long else 60]
    with start_engine("deltalog") as engine:
        there = list(run(engine, cases))
    assert there == list(run(load_engine("deltalog"), cases))
    assert {each.outcome for each in there} == {"passed"}


class Feeds(DeltalogEngine):
    """Returns change data feeds as a list of dictionaries, as a program in another language may."""

    def __init__(self, time: Any) -> None:
        self._time = time

    def changes(self, *arguments: Any, **named: Any) -> Any:
        rows = super().changes(*arguments, **named).to_pylist()
        return [{**row, "_commit_timestamp": self._time(row["_commit_timestamp"])} for row in rows]


@pytest.mark.parametrize(
    "time",
    [
        lambda at: at,
        lambda at: at.replace(tzinfo=None),
        lambda at: round(at.timestamp() * 1000),
        lambda at: at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    ],
    ids=["datetime", "without-zone", "milliseconds", "text"],
)
def test_times_of_changes_in_lists(time: Any) -> None:
    feeds = [case for case in all_cases() if any(isinstance(s, Changes) and s.timestamps for s in case.steps)][:5]
    assert feeds and {outcome.outcome for outcome in run(Feeds(time), feeds)} == {"passed"}
    wrong = Feeds(lambda at: at + datetime.timedelta(seconds=1))
    assert {outcome.outcome for outcome in run(wrong, feeds)} == {"failed"}


def test_a_parquet_file_in_this_process(tmp_path: Path) -> None:
    class Files(DeltalogEngine):
        def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
            return tmp_path / "rows.parquet"

    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [0, 1]}), tmp_path / "rows.parquet")
    case = Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), (Rows(ids(1)),))
    (tmp_path / "place").mkdir()
    assert run_case(Files(), case, tmp_path / "place").outcome == "passed"
    assert not (tmp_path / "rows.parquet").exists()


# ---------------------------------------------------------------------------------- adapters that do not work


@pytest.mark.usefixtures("_in_checkout")
def test_an_adapter_that_reads_no_plain_table_ends_the_run() -> None:
    with (
        start_engine("tests.support.conformance.awkward:Broken") as engine,
        pytest.raises(AdapterError, match=r"adapter of awkward does not work here.*the server of the engine"),
    ):
        self_check(engine)


def test_the_check_of_an_adapter_in_this_process() -> None:
    self_check(DeltalogEngine())
    self_check(Engine())
    with pytest.raises(AdapterError, match="adapter of only-versions does not work here"):
        self_check(OnlyVersions())


@pytest.mark.usefixtures("_in_checkout")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tests.support.conformance.awkward:Unmade", "RuntimeError: the JVM did not start"),
        ("tests.support.conformance.awkward:Missing", "has no attribute 'Missing'"),
        ("no.such.module:X", "No module named 'no'"),
        ("builtins:dict", "no subclass|not a subclass"),
    ],
)
def test_an_adapter_that_cannot_be_loaded_ends_the_run(name: str, message: str) -> None:
    with pytest.raises(AdapterError, match=f"cannot run here.*({message})"), start_engine(name):
        pass


@pytest.mark.parametrize("name", ["nowhere", "command:"])
def test_an_engine_that_is_not_there_is_an_error(name: str) -> None:
    with pytest.raises(CallError):
        start_engine(name)


def test_the_engine_of_the_page_in_another_language(tmp_path: Path) -> None:
    """The example of docs/conformance.md, which is no Python."""
    page = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "engine.sh").write_text(text, encoding="utf-8")
    with start_engine(f"command:sh {tmp_path / 'engine.sh'}") as engine:
        self_check(engine)
        timeline = Timeline(at=(0, 1, 2))
        cases = [Case("a-case", "reading", "A case", "actions", timeline, (LatestVersion(n),)) for n in (2, 3)]
        outcomes = list(run(engine, [*cases, LATE["ict-late-exact-earlier"]]))
    assert engine.name == "shell" and [outcome.outcome for outcome in outcomes] == ["passed", "failed", "skipped"]
    assert outcomes[1].reason == "step 1, latest-version: the result is 2, not 3"
    assert outcomes[2].reason == "anything but the latest version"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has pyarrow, and neither deltalog nor its other dependencies."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    venv.EnvBuilder(symlinks=True).create(place)
    [packages] = place.glob("lib/python*/site-packages")
    for name in ("pyarrow", "numpy"):  # older versions of pyarrow cannot be imported without numpy
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            found = Path(spec.origin).parent
            for each in (found, *found.parent.glob(f"{name}-*.dist-info")):
                (packages / each.name).symlink_to(each)
    return place / "bin" / "python"


def test_the_engine_of_the_page_in_an_environment_of_its_own(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class of docs/conformance.md runs in a Python that has neither deltalog nor what PYTHONPATH names."""
    page = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^```python\n(# my_adapter\.py\n.*?)^```", page, re.M | re.S)
    (tmp_path / "my_adapter.py").write_text(text + _ABOUT, encoding="utf-8")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "outside.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "path"), str(ROOT)]))
    cases = {case.id: case for case in all_cases()}
    with start_engine("my_adapter:About", python=environment) as engine:
        self_check(engine)
        assert (engine.name, engine.version, engine.environment["pyarrow"]) == ("mine", "1.2", pa.__version__)
        chosen = ("read-type-long", "read-partition-string", "travel-time-exact", "read-no-protocol")
        outcomes = list(run(engine, [cases[id] for id in chosen]))
        [about] = engine.rows("about")
    assert [outcome.outcome for outcome in outcomes] == ["passed", "failed", "skipped", "failed"]
    assert outcomes[2].reason == "rows at a point in time"
    assert about == {
        "prefix": str(environment.parents[1]), "found": ["deltalog", "pyarrow"],
        "deltalog": str(Path(line_server.__file__).parents[1] / "__init__.py"),
    }  # fmt: skip


_ABOUT = """

import importlib.util
import sys


class About(MyEngine):
    def rows(self, path, version=None, timestamp_ms=None):
        if path != "about":
            return super().rows(path, version, timestamp_ms)
        names = ("deltalog", "msgspec", "outside", "pyarrow", "spark_ext", "tests")
        found = [name for name in names if importlib.util.find_spec(name) is not None]
        return [{"prefix": sys.prefix, "found": found, "deltalog": importlib.util.find_spec("deltalog").origin}]
"""


def test_the_command_runs_an_engine_by_another_python(environment: Path, tmp_path: Path) -> None:
    """The path of the interpreter may be relative to the current directory."""
    adapter = 'from deltalog.conformance.engine import Engine\n\nclass Empty(Engine):\n    name = "empty"\n'
    (tmp_path / "empty.py").write_text(adapter, encoding="utf-8")
    relative = os.path.relpath(environment, tmp_path)
    command = [sys.executable, "-m", "deltalog.cli.main", "conformance", "run", "--json"]
    done = subprocess.run(
        [*command, "--engine", "empty:Empty", "--python", relative, "--case", "ict-late-exact-later"],
        capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["engine"] == "empty"
    assert found["environment"] == {"python": platform.python_version(), "pyarrow": pa.__version__}
    assert found["cases"][0]["reason"] == "reading"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("command:sh engine.sh", "is a program, which no Python starts"),
        ("kernel-java", "is a program, which no Python starts"),
        ("nowhere", "there is no engine 'nowhere'"),
        ("mine:Tiny", "is a directory: give the interpreter in it, such as .*bin/python"),
    ],
)
def test_what_another_python_cannot_start(name: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CallError, match=message):
        start_engine(name, python=tmp_path)


def test_an_older_python_is_refused_by_name() -> None:
    """The bootstrap file does not import the rest of deltalog there, which such a Python cannot read."""
    bootstrap = Path(line_server.__file__).with_name("bootstrap.py")
    code = f"import runpy, sys; sys.version_info = (3, 8, 18); runpy.run_path({str(bootstrap)!r}, run_name='__main__')"
    launch = Launch("old", [sys.executable, "-I", "-S", "-c", code], "here")
    with pytest.raises(AdapterError, match=r"cannot run here: adapters need Python 3\.10 or newer, and this is 3\.8$"):
        RemoteEngine(launch).__enter__()


def test_a_program_gets_the_calls_that_it_does_not_list() -> None:
    """Its answer is the reason why the case is skipped."""
    code = (
        "import json, sys\n"
        """print('{"protocol": 1, "engine": "e", "calls": ["latest_version"]}', flush=True)\n"""
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    print(json.dumps({'id': request['id'], 'not_supported': 'no ' + request['call']}), flush=True)\n"
    )
    with RemoteEngine(Launch("e", [sys.executable, "-I", "-S", "-c", code], "here")) as engine:
        [outcome] = run(engine, [LATE["ict-late-exact-enablement"]])
    assert (outcome.outcome, outcome.reason) == ("skipped", "no rows")


@pytest.mark.parametrize(
    ("answer", "message", "refused_step", "other_step"),
    [
        ("refused", "unsupported feature: x", "passed", "skipped"),
        ("refused", "another error", "passed", "failed"),
        ("failed", "unsupported feature: x", "skipped", "skipped"),
        ("failed", "another error", "failed", "failed"),
    ],
)
def test_what_an_error_does_to_its_case(answer: str, message: str, refused_step: str, other_step: str) -> None:
    """The table of docs/conformance.md."""
    code = (
        "import json, sys\n"
        """print('{"protocol": 1, "engine": "e", "lacks": "unsupported feature"}', flush=True)\n"""
        "for line in sys.stdin:\n"
        f"    said = {{{answer!r}: {{'type': 'E', 'message': {message!r}}}}}\n"
        "    print(json.dumps({'id': json.loads(line)['id'], **said}), flush=True)\n"
    )
    rows = Rows(ids(1))
    cases = [
        Case("a-case", "reading", "A case", "actions", Timeline(at=(0, 1)), (step,))
        for step in (Refused(rows), MayRefuse(rows), rows)
    ]
    with RemoteEngine(Launch("e", [sys.executable, "-I", "-S", "-c", code], "here")) as engine:
        outcomes = [outcome.outcome for outcome in run(engine, cases)]
    assert outcomes == [refused_step, refused_step, other_step]


def test_requests_in_json_are_what_the_page_says(tmp_path: Path) -> None:
    """Rows and schemas arrive as files with the same content, and every parameter is present."""
    code = (
        "import json, sys\n"
        """print('{"protocol": 1, "engine": "e"}', flush=True)\n"""
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    rows = request['arguments'].get('rows', {})\n"
        "    found = [{'request': line, 'json': json.load(open(rows['json'])) if rows else None}]\n"
        "    open(request['into'], 'w').write(json.dumps(found))\n"
        "    if request['call'] == 'rows':\n"
        "        print(json.dumps({'id': request['id'], 'rows': 'json'}), flush=True)\n"
        "    else:\n"
        "        message = json.dumps(found)\n"
        "        print(json.dumps({'id': request['id'], 'refused': {'type': 'T', 'message': message}}), flush=True)\n"
    )
    launch = Launch("e", [sys.executable, "-I", "-S", "-c", code], "here")
    with RemoteEngine(launch) as engine:
        [row] = engine.rows("/table", timestamp_ms=5)
        request = json.loads(row["request"])
        assert request["arguments"] == {"path": "/table", "version": None, "timestamp_ms": 5}
        assert (request["id"], request["call"]) == (1, "rows") and "on" not in request
        with pytest.raises(EngineRefusal) as refused:
            engine.append("/table", pa.table({"id": [1], "day": [datetime.date(2025, 1, 15)]}))
        [found] = json.loads(str(refused.value))
        assert found["json"] == [{"id": 1, "day": "2025-01-15"}]
        assert json.loads(found["request"])["arguments"]["rows"].keys() == {"arrow", "parquet", "json"}
        schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("a", pa.list_(pa.int32()))])
        with pytest.raises(EngineRefusal) as refused:
            engine.create("/table", schema, ("p",), {"x": "y"})
        arguments = json.loads(json.loads(str(refused.value))[0]["request"])["arguments"]
    array = {"type": "array", "elementType": "integer", "containsNull": True}
    assert arguments["schema"]["columns"] == {"id": "long", "p": "string", "a": array}
    assert arguments["partition_by"] == ["p"] and arguments["properties"] == {"x": "y"}


def test_the_bootstrap_file_is_a_module_without_effects() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import deltalog.conformance.bootstrap, sys; print('pyarrow' in sys.modules)"],
        capture_output=True, text=True, timeout=60, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout == "False\n"
