"""Driver processes: their executors are threads, or processes that may or may not have access to the driver's disk."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC"
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.log.level": "OFF",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "500",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# A task may fail once. Executors are processes of two workers; the master and the workers run inside the driver's JVM.
_LOCAL = {"spark.master": "local[2,2]"}
_CLUSTER = {
    "spark.master": "local-cluster[2,1,768]",
    "spark.executor.memory": "512m",
    "spark.task.maxFailures": "2",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
}
# Starts executors that see an empty directory in place of the tables' directory, which is the first argument.
_JAVA_WITH_ANOTHER_DISK = """\
#!/bin/sh
case "$*" in
*CoarseGrainedExecutorBackend*) exec {unshare} sh -c 'mount -t tmpfs none "$0" && exec "$@"' {directory} {java} "$@" ;;
*) exec {java} "$@" ;;
esac
"""


class Driver:
    """A running driver. ``kind``: ``local``, ``cluster``, or ``other disk``: a cluster whose executors see an empty
    directory in place of ``tables``."""

    def __init__(self, kind: str, scratch: Path, tables: Path) -> None:
        for directory in (scratch, tables):
            directory.mkdir(parents=True, exist_ok=True)
        conf = {**_SETTINGS, **(_LOCAL if kind == "local" else _CLUSTER)}
        conf["spark.local.dir"] = str(scratch / "local")
        conf["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
        names = ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_HOME", "SPARK_API_MODE")
        environment = {name: value for name, value in os.environ.items() if name not in names}
        environment |= {"PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
        if kind != "local":
            environment["SPARK_HOME"] = str(_spark_home(scratch / "home"))
        if kind == "other disk":
            environment["JAVA_HOME"] = str(_java_home(scratch / "java", tables))
        self._errors = (scratch / "stderr").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.spark_failures.driver", json.dumps(conf)],
            cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
        )  # fmt: skip
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._receive, daemon=True).start()
        ready = self.answer()
        if ready is None:
            self.stop()
            raise RuntimeError(f"the driver did not start: {(scratch / 'stderr').read_text(errors='replace')[-3000:]}")
        self._jvm = int(ready["jvm"])

    def _receive(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@"):
                self._answers.put(json.loads(line[1:]))
        self._answers.put(None)

    def send(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self, seconds: float = 900) -> dict[str, Any] | None:
        """The next response; None if the process has ended. Raises TimeoutError."""
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer of the driver within {seconds} s") from None

    def write(self, **command: Any) -> dict[str, Any]:
        """Make one attempt and return its result."""
        self.send(do="write", **command)
        while (found := self.answer()) is not None:
            if "start" not in found:
                return found
        raise RuntimeError("the driver ended")

    def kill(self, victims: str) -> None:
        """Kill the Python process, the JVM, or both. If the Python process is killed, wait until both have ended."""
        if victims in ("jvm", "both"):
            os.kill(self._jvm, signal.SIGKILL)
        if victims in ("python", "both"):
            self._process.kill()
            self._process.wait(60)
            _await_end(self._jvm)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._errors.close()


def _await_end(pid: int, seconds: float = 120) -> None:
    """Wait for the end of a JVM, which is not a child of this process and ends after the process that it serves."""
    done = threading.Event()
    for _ in range(int(seconds * 10)):
        try:
            state = (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            )
        except OSError:
            return
        if state in "ZX":
            return
        done.wait(0.1)
    raise TimeoutError(f"the JVM {pid} outlives its driver")


def _spark_home(home: Path) -> Path:
    """A SPARK_HOME that contains the files of PySpark's wheel, and a separate work directory for executors."""
    import pyspark

    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home


def _java_home(home: Path, directory: Path) -> Path:
    java = shutil.which("java")
    if "JAVA_HOME" in os.environ:
        java = os.path.join(os.environ["JAVA_HOME"], "bin", "java")
    unshare = separation()
    assert java is not None and unshare is not None
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text(
        _JAVA_WITH_ANOTHER_DISK.format(unshare=unshare, directory=directory, java=os.path.realpath(java)),
        encoding="utf-8",
    )
    program.chmod(0o755)
    return home


def separation() -> str | None:
    """The command that runs a process in its own mount namespace; None if the system does not permit it."""
    for command in ("unshare --mount", "unshare --user --map-root-user --mount"):
        try:
            done = subprocess.run(
                [*command.split(), "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
            )
        except OSError:
            return None
        if done.returncode == 0:
            return command
    return None
