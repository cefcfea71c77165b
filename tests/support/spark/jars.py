"""Java, and the jars that the tests need: delta-spark's, Hadoop's S3A file system, and Unity Catalog's client with the
Delta kernel.

`require_java()` finds Java 17 or newer, or explains what is missing. `delta_jars()` returns the jars of the pinned
delta-spark release, `s3a_jars()` the S3A jars for pyspark's version of Hadoop, and `unity_jars()` those of a JVM that
has no Spark; Maven downloads them once into a cache directory. Environment:

- `DELTALOG_TEST_JARS`: the directory of the delta-spark jars (default `~/.cache/deltalog/jars/delta-<version>`);
- `DELTALOG_TEST_IVY`: when set, no jar is copied and Spark's own Ivy resolves the packages instead;
- `JAVA_HOME`: the Java to use instead of the one on the PATH.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

DELTA_VERSION = "4.4.0"
SPARK_LINE = "4.2"
MINIMUM_JAVA = 17
HADOOP_VERSION = "3.5.0"  # the Hadoop version that this pyspark release uses
UNITY_VERSION = "0.6.0"  # the release of Unity Catalog's client that this delta-storage release uses
_POM = Path(__file__).with_name("pom.xml")
_S3A_POM = Path(__file__).with_name("s3a-pom.xml")
_UNITY_POM = Path(__file__).with_name("unity-pom.xml")
_NEEDED = (f"delta-spark_{SPARK_LINE}_2.13-{DELTA_VERSION}.jar", f"delta-storage-{DELTA_VERSION}.jar")


class SparkEnvironmentError(RuntimeError):
    """A requirement of the Spark tests is missing on this machine; the message says how to fix it."""


def java_major(version_text: str) -> int | None:
    """The major version in the output of `java -version` (`1.8.0_402` is 8), or None if the output has no version."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', version_text)
    if found is None:
        return None
    major = int(found.group(1))
    return int(found.group(2)) if major == 1 and found.group(2) is not None else major


def java_command() -> str:
    """The java command that Spark would start: that of JAVA_HOME, or otherwise the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise SparkEnvironmentError(
                f"JAVA_HOME is {home!r}, but there is no bin/java below it. Point JAVA_HOME at a Java "
                f"{MINIMUM_JAVA} or newer installation, or unset it to use the java on the PATH."
            )
        return str(java)
    found = shutil.which("java")
    if found is None:
        raise SparkEnvironmentError(
            f"Spark needs Java {MINIMUM_JAVA} or newer, and no java was found: JAVA_HOME is not set and "
            "there is none on the PATH. Install a JDK or JRE (for instance OpenJDK 17) or set JAVA_HOME."
        )
    return found


def require_java() -> int:
    """Check that Java 17 or newer is available; returns its major version or raises SparkEnvironmentError."""
    java = java_command()
    try:
        run = subprocess.run([java, "-version"], check=False, capture_output=True, text=True, timeout=120)
    except OSError as error:
        raise SparkEnvironmentError(f"{java} cannot be started ({error}). Set JAVA_HOME to a working Java.") from error
    text = run.stderr + run.stdout
    major = java_major(text)
    if run.returncode != 0 or major is None:
        raise SparkEnvironmentError(f"`{java} -version` gave no version (exit {run.returncode}): {text.strip()!r}")
    if major < MINIMUM_JAVA:
        raise SparkEnvironmentError(
            f"Spark needs Java {MINIMUM_JAVA} or newer; {java} is Java {major}. Install a newer one and set "
            "JAVA_HOME to it, or put it first on the PATH."
        )
    return major


def uses_ivy() -> bool:
    """Whether Spark's Ivy fetches the packages, because the environment variable is set or Maven is not installed."""
    return bool(os.environ.get("DELTALOG_TEST_IVY")) or (shutil.which("mvn") is None and not _cached(cache_dir()))


def cache_dir() -> Path:
    """The directory of the jars."""
    chosen = os.environ.get("DELTALOG_TEST_JARS")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path.home() / ".cache" / "deltalog" / "jars" / f"delta-{DELTA_VERSION}"


def delta_jars() -> list[Path]:
    """The delta-spark jars, sorted by name; jars that are not in the cache are downloaded. Safe in parallel
    processes."""
    versions = {"delta.version": DELTA_VERSION, "spark.line": SPARK_LINE}
    return _jars(cache_dir(), _POM, _NEEDED, versions)


def s3a_jars() -> list[Path]:
    """The S3A jars, which are hadoop-aws and the AWS SDK modules that it uses; downloaded like ``delta_jars``."""
    target = Path.home() / ".cache" / "deltalog" / "jars" / f"s3a-{HADOOP_VERSION}"
    return _jars(target, _S3A_POM, (f"hadoop-aws-{HADOOP_VERSION}.jar",), {"hadoop.version": HADOOP_VERSION})


def unity_jars() -> list[Path]:
    """The jars of Unity Catalog's Java client and of the Delta kernel with its Unity Catalog module, and all that they
    need except Hadoop; downloaded like ``delta_jars``."""
    target = Path.home() / ".cache" / "deltalog" / "jars" / f"unity-{UNITY_VERSION}-kernel-{DELTA_VERSION}"
    kernel = tuple(f"delta-kernel-{name}-{DELTA_VERSION}.jar" for name in ("api", "unitycatalog"))
    needed = (f"unitycatalog-client-{UNITY_VERSION}.jar", *kernel)
    return _jars(target, _UNITY_POM, needed, {"delta.version": DELTA_VERSION, "unity.version": UNITY_VERSION})


def _jars(target: Path, pom: Path, needed: Sequence[str], versions: Mapping[str, str]) -> list[Path]:
    if not _cached(target, needed):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(target.name + ".lock")):
            if not _cached(target, needed):
                _fetch(target, pom, needed, versions)
    return sorted(target.glob("*.jar"))


def _cached(directory: Path, needed: Sequence[str] = _NEEDED) -> bool:
    return all((directory / name).is_file() for name in needed)


def _fetch(target: Path, pom: Path, needed: Sequence[str], versions: Mapping[str, str]) -> None:
    # Maven writes the files one by one into a temporary directory, which is renamed when it is complete, so that a
    # killed run leaves no partial directory.
    maven = shutil.which("mvn")
    if maven is None:
        raise SparkEnvironmentError(
            f"Maven (mvn) is not installed, so {needed[0]} and what it needs cannot be copied. Install it; for the "
            "delta-spark jars, DELTALOG_TEST_IVY=1 lets Spark fetch the packages itself."
        )
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        shutil.copy(pom, scratch)
        out = Path(scratch) / "jars"
        command = [
            maven, "-B", "-q", "-f", str(Path(scratch) / pom.name),
            *(f"-D{name}={value}" for name, value in versions.items()),
            "dependency:copy-dependencies", f"-DoutputDirectory={out}", "-DincludeScope=runtime",
        ]  # fmt: skip
        run = subprocess.run(command, check=False, capture_output=True, text=True)
        if run.returncode != 0 or not _cached(out, needed):
            raise SparkEnvironmentError(
                f"Maven could not copy {needed[0]} and what it needs (exit {run.returncode}). "
                f"Its last words: {(run.stdout + run.stderr).strip()[-1500:]}"
            )
        if target.exists():  # an incomplete directory that another program left there
            target.rename(Path(scratch) / "old")
        out.rename(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
