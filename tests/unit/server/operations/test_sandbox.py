"""The server needs no more than the unit in deploy/systemd and the manifests in deploy/kubernetes give it: it runs as
an unprivileged user without capabilities, on a read-only file system with one directory that it can write to."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
USER = 10001
# The directory stays writable; all else is read-only, /tmp included.
ENTER = f"""
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -o remount,bind,ro /
cd /
shift
exec setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
"""
WORK = """
import pyarrow as pa
from deltalog import DeltaTable, UnityCatalog

catalog = UnityCatalog("main")
catalog.create_schema("shop")
catalog.create_table("shop.orders", pa.table({"id": [1]}))
table = DeltaTable.open("uc://main.shop.orders")
table.append(pa.table({"id": [2]}))
print(table.snapshot().num_files)
"""


def interpreter() -> str:
    """An interpreter that other users can run, with the packages of this one."""
    for program in (os.path.realpath(sys.executable), shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        command = ["setpriv", "--reuid", str(USER), "--clear-groups", str(program), "-c"]
        check = f"import sys; sys.path += {sys.path!r}; import msgspec, pyarrow, typer, uvicorn"
        if program and subprocess.run([*command, check], capture_output=True, cwd="/").returncode == 0:
            return program
    pytest.skip("no interpreter that another user can run has the packages")


@pytest.fixture
def state() -> Iterator[Path]:
    if sys.platform != "linux" or os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")):
        pytest.skip("a file system can be made read-only by root on Linux only")
    made = Path(tempfile.mkdtemp(prefix="deltalog-state-"))  # pytest's directories are closed to other users
    os.chown(made, USER, USER)
    tried = ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(made), "true"]
    try:
        if subprocess.run(tried, capture_output=True).returncode:
            pytest.skip("this container has no mount namespaces")
        yield made
    finally:
        shutil.rmtree(made)


@pytest.mark.long  # another interpreter without compiled modules: ten seconds
def test_it_writes_only_to_its_state_directory(state: Path) -> None:
    program = interpreter()
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(each for each in sys.path if each)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        *("unshare", "--mount", "sh", "-c", ENTER, "sh", str(state), program, "-m", "deltalog"),
        *("serve", str(state / "catalog.db"), "--warehouse", str(state / "warehouse"), "--port", "0", "--json"),
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables, cwd="/"
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, server.communicate(timeout=30)
        client = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups", program, "-c", WORK]
        done = subprocess.run(
            client, capture_output=True, text=True, cwd="/", timeout=120,
            env={**variables, "UNITY_CATALOG_URL": json.loads(line)["url"]},
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=60)
        assert server.returncode == 0, log
        assert not [each for each in log.splitlines() if "ERROR" in each or "Read-only" in each], log
    finally:
        server.kill()
        server.wait()
    assert {each.name.split("-")[0] for each in state.iterdir()} == {"catalog.db", "warehouse"}
