from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import pytest

import spark_ext
from tests.spark.many_files import COUNT, IGNORED, ManyFiles, lists, make_flat, make_hive
from tests.spark.many_files import scratch as scratch
from tests.spark.settings import session_of

# A setting that makes Spark Connect analyze each query again. Spark 3.5 always does so, and later versions do if the
# server's cache has evicted the plan.
_ANEW = {"spark.connect.session.planCache.enabled": "false"}


class TestManyFiles(ManyFiles):
    """On Spark Connect."""


def test_the_list_lives_as_long_as_a_dataframe_of_it(spark: Any, table: str, scratch: Path) -> None:
    make_flat(table)
    df = spark_ext.read(spark).load(table)
    derived = df.where("id > 3").select("id").limit(100)
    del df
    gc.collect()
    assert len(lists()) == 1
    with session_of(spark, _ANEW):
        assert derived.count() == COUNT - 4
    derived.createOrReplaceTempView("many_files")
    del derived
    gc.collect()
    assert lists() == []
    # The server keeps the view's plan, which includes the list of files.
    assert spark.table("many_files").count() == COUNT - 4


@pytest.mark.parametrize("make", [make_flat, make_hive])
def test_a_list_that_is_lost_or_ignored_is_never_no_rows(spark: Any, table: str, scratch: Path, make: Any) -> None:
    make(table)
    df = spark_ext.read(spark).load(table)
    (made,) = scratch.iterdir()
    with session_of(spark, {**_ANEW, IGNORED: "true"}), pytest.raises(Exception, match="the-list-of-files-was-ignored"):
        df.where("id >= 0").count()
    with session_of(spark, _ANEW):
        assert df.count() == COUNT
        (made / "_spark_metadata" / "0").unlink()
        with pytest.raises(Exception, match="PATH_NOT_FOUND"):
            df.count()
        shutil.rmtree(made)
        with pytest.raises(Exception, match="PATH_NOT_FOUND"):
            df.count()
