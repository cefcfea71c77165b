"""deltalog can be imported without what only some operating systems have, and refuses by name what needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltalog.conformance import installation, remote
from deltalog.errors import CallError
from deltalog.server.serve import check_system
from tests.support.extras.program import modules

ROOT = Path(__file__).resolve().parents[2]
# What Python on Windows lacks. Names that only macOS lacks (O_TMPFILE) are among them.
MODULES = ("fcntl", "grp", "pwd", "resource", "syslog", "termios")
OF_OS = (
    *("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_TMPFILE", "fork", "register_at_fork", "killpg"),
    *("getuid", "geteuid", "getgid", "setsid", "fchmod", "chown", "getpgid", "sched_getaffinity", "statvfs", "mkfifo"),
)
OF_SIGNAL = ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGALRM", "alarm", "setitimer")
LIBRARIES = (
    *("asyncio", "concurrent.futures.process", "doctest", "getpass", "importlib.metadata", "jwt"),
    *("logging.handlers", "multiprocessing", "opentelemetry.trace", "pdb", "platform", "prometheus_client"),
    *("psycopg", "pyarrow.dataset", "pyarrow.parquet", "pytest", "rich.console", "rich.markup"),
    *("rich.progress", "rich.table", "sqlglot", "sqlite3", "ssl", "subprocess", "tempfile", "typer"),
    *("unittest.mock", "urllib3", "uvicorn", "uvicorn.protocols.http.h11_impl", "venv", "webbrowser"),
    *("zoneinfo"),
)
PROGRAM = f"""
import importlib, os, signal, sys
# deltalog is imported after libraries, which have their own ways to find out the system.
for name in {LIBRARIES!r}:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
for name in {MODULES!r}:
    sys.modules[name] = None
for name in {OF_OS!r}:
    if hasattr(os, name):
        delattr(os, name)
for name in {OF_SIGNAL!r}:
    if hasattr(signal, name):
        delattr(signal, name)
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{{name}}: {{type(error).__name__}}: {{error}}")
print("\\n".join(failed))
"""


def test_every_module_is_imported_without_what_windows_lacks() -> None:
    names = [name for name in modules() if not name.startswith(("spark_ext", "deltalog.conformance.engines."))]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Packages of extras may be missing here.
    assert [line for line in done.stdout.splitlines() if line and "No module named" not in line] == []


def test_a_module_that_needs_what_windows_lacks_is_noticed(tmp_path: Path) -> None:
    for number, line in enumerate(("import fcntl", "import os; os.O_CLOEXEC", "import signal; signal.SIGHUP")):
        (tmp_path / f"needs{number}.py").write_text(line)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "needs0", "needs1", "needs2"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["needs0", "needs1", "needs2"]


def test_the_server_is_refused_on_windows() -> None:
    with pytest.raises(CallError, match=r"server does not run on Windows.*WSL"):
        check_system("nt")
    check_system("posix")


def test_the_conformance_kit_is_refused_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr("os.killpg")
    launch = remote.Launch("engine", [sys.executable, "-c", ""], "here")
    with pytest.raises(CallError, match="does not run on Windows"), (tmp_path / "errors").open("wb") as errors:
        remote._Process(launch, errors)
    monkeypatch.setattr(installation, "fcntl", None)
    with pytest.raises(CallError, match="does not run on Windows"), installation._locked(tmp_path / "lock"):
        pass
