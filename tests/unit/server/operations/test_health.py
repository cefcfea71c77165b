"""deploy/health.py, the container's health check, tells whether the server of a configuration is alive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltalog import TransactionManager
from deltalog.server.serve import Server, Settings
from tests.support.server import running

ROOT = Path(__file__).resolve().parents[4]


def health(file: Path) -> int:
    command = [sys.executable, str(ROOT / "deploy" / "health.py"), str(file)]
    return subprocess.run(command, capture_output=True, timeout=60).returncode


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the image has a Python with tomllib")
def test_the_health_check_of_the_container(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    with running(Server(TransactionManager(str(tmp_path / "catalog.db")), Settings())) as (_, port):
        file.write_text(f'[listen]\nhost = "0.0.0.0"\nport = {port}\n')
        assert health(file) == 0
        # If the server requires client certificates, the check can only see whether it accepts a connection.
        file.write_text(f'[listen]\nport = {port}\n[tls]\nclient_ca_file = "ca.crt"\n')
        assert health(file) == 0
    assert health(file) == 1
    file.write_text(f"[listen]\nport = {port}\n")
    assert health(file) == 1
