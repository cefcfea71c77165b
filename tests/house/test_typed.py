"""The installed packages are typed for their users: mypy and pyright infer result types, and reject wrong calls."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

CORE = """
import deltalog

table = deltalog.DeltaTable.open("t")
number: int = table.append([{"id": 1}]).version
entries: list[deltalog.CommitEntry] = table.history()
found: bool = deltalog.check("t").ok
text: str = table.version  # E: Incompatible types in assignment
table.restore()
table.nothing()  # E: "DeltaTable" has no attribute "nothing"
"""
SPARK = """
import spark_ext
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.builder.getOrCreate()
result: spark_ext.WriteResult = spark_ext.write(spark.range(3)).mode("append").option("mergeSchema", True).save("t")
table: spark_ext.DeltaTable = spark_ext.DeltaTable.forPath(spark, "t")
rows: spark_ext.WriteResult = table.merge(spark.range(3), "a = b").whenMatchedUpdateAll().execute()
deleted: spark_ext.WriteResult = table.delete("id = 1")
frame: DataFrame = spark_ext.read(spark).option("versionAsOf", 1).load("t")
answer: DataFrame = spark_ext.sql(spark, "SELECT 1")
text: str = result.version  # E: Incompatible types in assignment
spark_ext.nothing  # E: Module has no attribute "nothing"
spark_ext.write(spark.range(3)).save(1)  # E: incompatible type "int"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the programs, and with an environment that has the two packages and the dependencies of this
    one."""
    place = tmp_path_factory.mktemp("typed")
    made = place / "venv"
    venv.create(made, with_pip=False)
    [packages] = (made / "lib").glob("python*/site-packages")
    for name in ("deltalog", "spark_ext"):
        (packages / name).symlink_to(ROOT / name)
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    (place / "core.py").write_text(CORE)
    if find_spec("pyspark"):
        (place / "spark.py").write_text(SPARK)
    return place


@pytest.fixture(scope="module")
def mypy_output(place: Path) -> list[str]:
    programs = sorted(file.name for file in place.glob("*.py"))
    python = ["--python-executable", str(place / "venv" / "bin" / "python"), "--cache-dir", str(place / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *python, "--config-file", "", *programs],
        cwd=place, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(tuple(programs)) and " error: " in line]


@pytest.mark.long  # takes 40 seconds; the command is the same as in .github/workflows/tests.yml
@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("core.py", CORE),
        pytest.param("spark.py", SPARK, marks=pytest.mark.skipif(not find_spec("pyspark"), reason="no PySpark")),
    ],
    ids=["deltalog", "spark_ext"],
)
def test_programs_are_checked_with_the_types_of_the_packages(mypy_output: list[str], name: str, program: str) -> None:
    wanted = {
        number: line.partition("  # E: ")[2] for number, line in enumerate(program.splitlines(), 1) if "  # E: " in line
    }
    found = {int(line.split(":")[1]): line for line in mypy_output if line.startswith(name)}
    assert found.keys() == wanted.keys(), found
    assert [found[number] for number, text in wanted.items() if text not in found[number]] == []


@pytest.mark.long  # takes 40 seconds
def test_pyright_finds_the_same_lines(place: Path) -> None:
    pytest.importorskip("pyright")
    (place / "pyrightconfig.json").write_text(
        json.dumps({"venvPath": ".", "venv": "venv", "reportMissingImports": False})
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--project", str(place)],
        cwd=place, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    found = {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in answer["generalDiagnostics"]
        if each["severity"] == "error"
    }
    programs = {file.name: file.read_text() for file in place.glob("*.py")}
    wanted = {
        (name, number)
        for name, program in programs.items()
        for number, line in enumerate(program.splitlines(), 1)
        if "  # E: " in line
    }
    assert answer["summary"]["filesAnalyzed"] == len(programs)
    assert found.keys() == wanted, found


def test_each_package_says_that_it_is_typed() -> None:
    assert (ROOT / "deltalog" / "py.typed").exists() and (ROOT / "spark_ext" / "py.typed").exists()
