"""Missing requirements of the Spark tests are detected, and are reported by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark import SparkEnvironmentError, java_major, require_java
from tests.support.spark.session import plain_session


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_java_versions(text: str, major: int | None) -> None:
    assert java_major(text) == major


def java_home(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return directory


def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "old", "1.8.0_402")))
    with pytest.raises(SparkEnvironmentError, match=r"needs Java 17 or newer.*is Java 8"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(java_home(tmp_path / "new", "21.0.1")))
    assert require_java() == 21


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkEnvironmentError, match="no bin/java below it"):
        require_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkEnvironmentError, match="no java was found"):
        require_java()


@pytest.mark.usefixtures("delta")
def test_a_process_has_one_kind_of_session() -> None:
    with pytest.raises(SparkEnvironmentError, match="separate pytest processes"):
        plain_session()
