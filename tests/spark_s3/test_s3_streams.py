"""Streams between tables on S3: every row is written exactly once, even after restarts and if responses of the store
are lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import deltalog
import spark_ext
from tests.spark.settings import since
from tests.spark.streams import Input, finish
from tests.spark_s3.conftest import Place, data_objects, session_reaches
from tests.support.s3 import Request, Reset

_COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])
_as_format = since("4.0", "Python data sources")


def _data(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "name": [f"row {each}" for each in ids]}, _COLUMNS)


def _target(place: Place) -> deltalog.DeltaTable:
    return deltalog.DeltaTable.open(place.url + "/target", **place.options)


def _ids(place: Place) -> list[int]:
    return sorted(_target(place).snapshot().scan().to_arrow()["id"].to_pylist())


def _batches(place: Place) -> list[int]:
    """The ids of the batches that the versions of the target table record."""
    store = deltalog.open_store(place.url + "/target", **place.options)
    logs = [store.get(f"_delta_log/{version:020d}.json") for version in range(_target(place).version + 1)]
    actions = [json.loads(line) for log in logs for line in log.splitlines()]
    return [each["txn"]["version"] for each in actions if "txn" in each]


def _lose_answer(place: Place, ending: str) -> list[str]:
    """Let the first PUT of a key with this ending succeed, but lose its response. Returns these keys."""
    lost: list[str] = []

    def rule(request: Request, forward: Any) -> Any:
        answer = forward()
        if request.method == "PUT" and request.key.endswith(ending) and not lost:
            lost.append(request.key)
            raise Reset
        return answer

    place.proxy.rule = rule
    return lost


def _run(spark: Any, place: Place, checkpoint: str, **options: Any) -> None:
    reader = spark.readStream.format("deltalog").option("maxFilesPerTrigger", 1).options(**options)
    writer = reader.load(place.url + "/source").writeStream.format("deltalog").options(**options)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(place.url + "/target")
    finish(query)


@_as_format
@pytest.mark.parametrize("all_on_s3", [True, pytest.param(False, marks=pytest.mark.long)])
def test_from_table_to_table_over_restarts(spark: Any, place: Place, tmp_path: Path, all_on_s3: bool) -> None:
    source = deltalog.DeltaTable.create(place.url + "/source", _COLUMNS, data=_data(1, 2), **place.options)
    source.append(_data(3))
    spark_ext.register(spark, storage_options=place.options if all_on_s3 else None)
    options = {} if all_on_s3 else {"storageOptions": json.dumps(place.options)}
    checkpoint = (place.url.replace("s3:", "s3a:") if all_on_s3 else str(tmp_path)) + "/checkpoint"
    with session_reaches(spark, place):
        _run(spark, place, checkpoint, **options)
        assert _ids(place) == [1, 2, 3]
        first = _target(place).version
        _run(spark, place, checkpoint, **options)
        assert (_ids(place), _target(place).version) == ([1, 2, 3], first)
        source.append(_data(4, 5))
        lost = _lose_answer(place, f"/target/_delta_log/{first + 1:020d}.json")
        _run(spark, place, checkpoint, **options)
    assert lost and _ids(place) == [1, 2, 3, 4, 5]
    assert _batches(place) == sorted(set(_batches(place)))
    assert deltalog.check(place.url + "/target", **place.options).ok
    live = _target(place).snapshot().files()["path"].to_pylist()
    assert {f"target/{path}" for path in live} == {key for key in data_objects(place) if _is_data(key)}


def _is_data(key: str) -> bool:
    return key.startswith("target/") and not key.startswith("target/_delta_log/")


@_as_format
def test_a_batch_whose_staged_file_had_no_answer_is_there_once(spark: Any, place: Place, tmp_path: Path) -> None:
    deltalog.DeltaTable.create(place.url + "/source", _COLUMNS, data=_data(1, 2), **place.options)
    spark_ext.register(spark, storage_options=place.options)
    lost = _lose_answer(place, ".parquet")
    _run(spark, place, str(tmp_path / "checkpoint"))
    assert lost and _ids(place) == [1, 2]


def test_foreach_batch_writes_each_batch_once(spark: Any, place: Place, tmp_path: Path) -> None:
    source = Input(spark, tmp_path / "stream")
    write = spark_ext.stream_writer(place.url + "/target", "events", storage_options=place.options)
    source.add(1, 2)
    lost = _lose_answer(place, "/target/_delta_log/00000000000000000001.json")
    source.add(3)
    source.run(write)
    source.add(4)
    source.run(write)
    assert lost and (_ids(place), _batches(place)) == ([1, 2, 3, 4], [0, 1, 2])


@_as_format
def test_streams_have_the_settings_of_the_session(spark: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """If table and checkpoint are on S3 and no options are given, the environment's credentials are not used."""
    source = deltalog.DeltaTable.create(place.url + "/source", _COLUMNS, data=_data(1, 2), **place.options)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-another-service")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-another-service")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with session_reaches(spark, place):
        spark_ext.register(spark)
        checkpoint = place.url.replace("s3:", "s3a:") + "/checkpoint"
        _run(spark, place, checkpoint)
        source.append(_data(3))
        _run(spark, place, checkpoint)
    assert _ids(place) == [1, 2, 3]
