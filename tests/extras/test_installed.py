"""Tests each extra as a user installs it: as a wheel of the project, in a virtual environment that contains nothing
else.

``tests/house/test_extras.py`` is the cheap variant of this test: it hides packages of this environment instead of
installing extras.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.extras import BASE, ROOT, extras, requirement, run_program
from tests.support.s3 import Server

pytestmark = [pytest.mark.installs, pytest.mark.timeout(3600)]


def run(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT)
    [file] = directory.iterdir()
    return file


@pytest.mark.parametrize("extra", extras())
def test_an_extra_alone(extra: str, wheel: Path, tmp_path: Path, moto: Server) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    try:
        python = str(venv / "bin" / "python")
        wanted = f"{requirement(extra)} @ {wheel.as_uri()}"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted)
        run(python, "-m", "pip", "check")
        imported = run_program(python, "imports", extra, cwd=tmp_path)
        assert imported.returncode == 0 and str(venv) in imported.stdout, imported.stdout + imported.stderr
        server = ["--s3", f"http://127.0.0.1:{moto.port}", "--bucket", moto.bucket()]
        called = run_program(python, "--jvm", *server, "calls", extra, cwd=tmp_path, seconds=900)
        assert called.returncode == 0, called.stdout + called.stderr
    finally:
        shutil.rmtree(venv)


def test_the_extras_of_users_are_all_there() -> None:
    assert {BASE, "cli", "s3", "spark", "connect", "all"} <= set(extras())
