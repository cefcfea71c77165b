"""Random damages to data files, deletion vectors, and the add actions that describe them."""

from __future__ import annotations

import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.doctor.random_damages.kinds import kind
from tests.support.doctor.random_damages.log import Line, Log, Place, cut, swap

_FLAT = ("long", "integer", "short", "byte", "double", "string", "date")


# ------------------------------------------------------------------------------------------------- data files


@kind()
def a_lost_data_file(log: Log) -> tuple[str, ...]:
    log.data(log.pick(log.live())).unlink()
    return ("data-file-missing",)


@kind()
def a_lost_file_of_an_earlier_version(log: Log) -> tuple[str, ...]:
    gone = log.data(log.pick(log.removed()))
    log.pick([None] * gone.exists())
    gone.unlink()
    return ("version-lost",)


@kind()
def a_data_file_cut(log: Log) -> tuple[str, ...]:
    cut(log.data(log.pick(log.live())), log.chance.uniform(0, 0.99))
    return "data-file-size-differs", "data-file-unreadable"


@kind()
def a_doubled_data_file(log: Log) -> tuple[str, ...]:
    file = log.data(log.pick(log.live()))
    file.write_bytes(file.read_bytes() * 2)
    return ("data-file-size-differs",)


@kind()
def a_data_file_of_zeros(log: Log) -> tuple[str, ...]:
    file = log.data(log.pick(log.live()))
    size = file.stat().st_size
    start = log.chance.randrange(size - 8)
    file.write_bytes(file.read_bytes()[:start] + bytes(size - start))
    return ("data-file-unreadable",)


@kind()
def a_footer_of_other_bytes(log: Log) -> tuple[str, ...]:
    file = log.data(log.pick(log.live()))
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length : -8] = bytes(log.chance.randrange(128, 256) for _ in range(length))
    file.write_bytes(data)
    return ("data-file-unreadable",)


@kind(avoids=["vectors"])
def a_footer_of_another_length(log: Log) -> tuple[str, ...]:
    file = log.data(log.pick(log.live()))
    data = bytearray(file.read_bytes())
    data[-8:-4] = log.chance.randrange(len(data), 2**32).to_bytes(4, "little")
    file.write_bytes(data)
    return ("data-file-unreadable",)


def _rows(log: Log, place: Place) -> int:
    return int(pq.read_metadata(log.data(place)).num_rows)


def _resized(log: Log, place: Place) -> None:
    """Give the add action the size of the file, so that only the contents are wrong."""
    log.change(place, "add", {**place.body, "size": log.data(place).stat().st_size})


@kind()
def two_swapped_data_files(log: Log) -> tuple[str, ...]:
    one = log.pick(log.recent())
    other = log.pick(each for each in log.recent() if _rows(log, each) != _rows(log, one))
    swap(log.data(one), log.data(other))
    for each in (one, other):
        body = log.lines(each.version)[each.line]["add"]
        log.change(each, "add", {**body, "size": log.data(each).stat().st_size})
    return ("stats-contradict-footer",)


@kind()
def a_data_file_with_a_row_less(log: Log) -> tuple[str, ...]:
    place = log.pick(log.recent())
    rows = pq.read_table(log.data(place), partitioning=None)
    pq.write_table(rows.slice(1), log.data(place))
    _resized(log, place)
    return ("stats-contradict-footer",)


@kind(avoids=["mapped"])
def a_data_file_with_another_type(log: Log) -> tuple[str, ...]:
    place = log.pick(log.recent(plain=False))
    rows = pq.read_table(log.data(place), partitioning=None)
    kind = log.chance.choice((pa.string(), pa.bool_(), pa.timestamp("us")))
    at = rows.schema.get_field_index("id")
    pq.write_table(rows.set_column(at, "id", pa.nulls(len(rows), kind)), log.data(place))
    _resized(log, place)
    return ("data-column-type-differs",)


@kind(avoids=["mapped"])
def a_data_file_with_other_values(log: Log) -> tuple[str, ...]:
    place = log.pick(log.recent())
    rows = pq.read_table(log.data(place), partitioning=None)
    at = rows.schema.get_field_index("id")
    ids = pa.array([value + 1_000 for value in rows["id"].to_pylist()], rows["id"].type)
    pq.write_table(rows.set_column(at, "id", ids), log.data(place))
    _resized(log, place)
    return ("stats-contradict-footer",)


@kind(avoids=["mapped", "tracked", "changes"], deep=True)
def rows_that_break_a_constraint(log: Log) -> tuple[str, ...]:
    properties = {**log.properties(), "delta.constraints.small": f"id < {log.chance.randrange(1, 3)}"}
    metadata = log.metadata()
    log.pick([None] * (len(log.recent()) > 1))
    log.change(metadata, "metaData", {**metadata.body, "configuration": properties})
    return ("constraint-violated",)


@kind("wide", avoids=["mapped", "tracked", "changes"], deep=True)
def rows_that_break_a_constraint_in_some_time_zone(log: Log) -> tuple[str, ...]:
    metadata = log.metadata()
    fields = json.loads(metadata.body["schemaString"])["fields"]
    name = log.pick(each["name"] for each in fields if each["type"] == "timestamp")
    properties = {**log.properties(), "delta.constraints.early": f"{name} < '0002-01-01 00:00:00'"}
    log.pick(log.recent())
    log.change(metadata, "metaData", {**metadata.body, "configuration": properties})
    return ("value-depends-on-time-zone",)


# -------------------------------------------------------------------------------------------- paths and partitions


@kind()
def a_size_of_another_file(log: Log) -> tuple[str, ...]:
    place = log.pick(log.recent(plain=False))
    log.change(place, "add", {**place.body, "size": place.body["size"] + log.chance.choice((-1, 1, 1000))})
    return ("data-file-size-differs",)


@kind()
def a_path_that_leads_out(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    path = log.chance.choice(("../x.parquet", "a/../../x.parquet", "%2e%2e/x.parquet", "x%00.parquet", "/"))
    log.change(place, "add", {**place.body, "path": path})
    return ("path-invalid",)


@kind()
def a_path_that_is_not_encoded(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    path = log.chance.choice(("a b.parquet", "50%.parquet", "a{b}.parquet", "a\\b.parquet"))
    log.change(place, "add", {**place.body, "path": path})
    return ("path-not-encoded",)


@kind()
def a_path_elsewhere(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    path = log.chance.choice(("s3://bucket/x.parquet", "file:///nowhere/x.parquet", "/nowhere/x.parquet"))
    log.change(place, "add", {**place.body, "path": path})
    return ("path-outside-table",)


@kind()
def a_file_under_two_spellings(log: Log) -> tuple[str, ...]:
    body = log.pick(log.recent()).body
    name = body["path"]
    at = log.chance.randrange(len(name) - 10, len(name) - 8)
    log.append({"add": {**body, "path": f"{name[:at]}%{ord(name[at]):02x}{name[at + 1 :]}"}})
    return ("file-live-twice",)


@kind()
def a_hidden_data_file(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    log.change(place, "add", {**place.body, "path": f"_old/{place.body['path']}"})
    return ("data-file-hidden",)


@kind("partitioned")
def a_lost_partition_value(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    log.change(place, "add", {**place.body, "partitionValues": {}})
    return ("partition-values-missing",)


@kind()
def a_partition_value_too_many(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    log.change(place, "add", {**place.body, "partitionValues": {**place.body["partitionValues"], "x": "1"}})
    return ("partition-values-extra",)


@kind("partitioned")
def a_partition_value_of_another_directory(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.of_kind("add") if "=" in each.body["path"])
    name = next(iter(place.body["partitionValues"]))
    log.change(place, "add", {**place.body, "partitionValues": {name: "elsewhere"}})
    return ("partition-directory-differs",)


# ------------------------------------------------------------------------------------------------- statistics


def _with_stats(log: Log, group: str) -> Place:
    return log.pick(each for each in log.recent() if each.stats.get(group))


@kind()
def statistics_of_more_rows(log: Log) -> tuple[str, ...]:
    place = log.pick(log.recent())
    log.change_stats(place, {**place.stats, "numRecords": place.stats["numRecords"] + log.chance.randrange(1, 99)})
    return ("stats-contradict-footer",)


@kind()
def statistics_that_are_no_json(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    stats = place.body["stats"]
    broken = log.chance.choice((stats[:-1], "[1]", "null,", stats.replace(":", "", 1)))
    log.change(place, "add", {**place.body, "stats": broken})
    return ("stats-invalid",)


@kind()
def more_nulls_than_rows(log: Log) -> tuple[str, ...]:
    place = _with_stats(log, "nullCount")
    stats = place.stats
    flat = log.pick(name for name, count in stats["nullCount"].items() if isinstance(count, int))
    stats["nullCount"][flat] = log.chance.choice((stats["numRecords"] + 1, -1, 2**40))
    log.change_stats(place, stats)
    return ("stats-count-invalid",)


@kind()
def another_number_of_nulls(log: Log) -> tuple[str, ...]:
    place = _with_stats(log, "nullCount")
    stats = place.stats
    name = log.pick(name for name, count in stats["nullCount"].items() if isinstance(count, int))
    stats["nullCount"][name] = stats["numRecords"] - stats["nullCount"][name]
    log.pick([None] * (stats != place.stats))
    log.change_stats(place, stats)
    return ("stats-contradict-footer",)


def _physical(log: Log, *types: str) -> list[str]:
    """The physical names of the columns that have one of the types."""
    fields = json.loads(log.metadata().body["schemaString"])["fields"]
    key = "delta.columnMapping.physicalName"
    return [each["metadata"].get(key, each["name"]) for each in fields if each["type"] in types]


@kind()
def a_minimum_above_the_maximum(log: Log) -> tuple[str, ...]:
    numbers = _physical(log, "long", "integer")
    place = log.pick(each for each in log.recent() if set(numbers) & (each.stats.get("minValues") or {}).keys())
    stats = place.stats
    name = log.pick(sorted(set(numbers) & stats["minValues"].keys()))
    stats["minValues"][name] = stats["maxValues"][name] + 1
    log.change_stats(place, stats)
    return ("stats-min-above-max",)


@kind()
def a_minimum_above_the_rows(log: Log) -> tuple[str, ...]:
    """The statistics leave out rows: queries would miss them."""
    ids = _physical(log, "long")
    place = log.pick(
        each
        for each in log.recent()
        if any(each.stats["minValues"][name] < each.stats["maxValues"][name] for name in ids
               if name in (each.stats.get("minValues") or {}))
    )  # fmt: skip
    stats = place.stats
    name = log.pick(
        each for each in ids if each in stats["minValues"] and stats["minValues"][each] < stats["maxValues"][each]
    )
    stats["minValues"][name] = stats["maxValues"][name]
    log.change_stats(place, stats)
    return ("stats-contradict-footer",)


@kind()
def a_maximum_of_another_type(log: Log) -> tuple[str, ...]:
    numbers = _physical(log, "long", "integer", "short")
    place = log.pick(each for each in log.recent() if set(numbers) & (each.stats.get("maxValues") or {}).keys())
    stats = place.stats
    name = log.pick(sorted(set(numbers) & stats["maxValues"].keys()))
    stats["maxValues"][name] = log.chance.choice(("x", [1], {"a": 1}, 1.5, 2**70, True))
    log.change_stats(place, stats)
    return ("stats-value-invalid",)


@kind("wide")
def a_minimum_that_is_rounded_up(log: Log) -> tuple[str, ...]:
    times = _physical(log, "timestamp", "timestamp_ntz")
    place = log.pick(each for each in log.recent() if set(times) & (each.stats.get("minValues") or {}).keys())
    stats = place.stats
    name = log.pick(sorted(set(times) & stats["minValues"].keys()))
    head, _, rest = stats["minValues"][name].partition(".")
    log.pick([None] * (bool(rest) and not rest.startswith("999")))
    stats["minValues"][name] = f"{head}.999{rest[3:]}"
    log.change_stats(place, stats)
    return ("stats-rounded",)


@kind()
def statistics_of_no_column(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    stats = place.stats
    stats[log.chance.choice(("minValues", "maxValues", "nullCount"))] = {"nowhere": 1}
    log.change_stats(place, stats)
    return ("stats-column-unknown",)


# -------------------------------------------------------------------------------------------- deletion vectors


def _with_vector(log: Log) -> Place:
    return log.pick(each for each in log.recent(plain=False) if each.body.get("deletionVector"))


def _change_vector(log: Log, place: Place, **fields: object) -> None:
    log.change(place, "add", {**place.body, "deletionVector": {**place.body["deletionVector"], **fields}})


@kind("vectors", avoids=["checkpointed"])
def a_lost_vector_file(log: Log) -> tuple[str, ...]:
    file = log.vector(_with_vector(log))
    log.pick([None] * (file is not None))
    assert file is not None
    file.unlink()
    return ("vector-file-missing",)


@kind("vectors", avoids=["checkpointed"])
def a_vector_file_cut(log: Log) -> tuple[str, ...]:
    file = log.vector(_with_vector(log))
    log.pick([None] * (file is not None))
    assert file is not None
    cut(file, log.chance.uniform(0, 0.5))
    return ("vector-unreadable",)


@kind("vectors", avoids=["checkpointed"])
def a_flipped_byte_of_a_vector(log: Log) -> tuple[str, ...]:
    place = _with_vector(log)
    file = log.vector(place)
    log.pick([None] * (file is not None))
    assert file is not None
    data = bytearray(file.read_bytes())
    vector = place.body["deletionVector"]
    start = (vector.get("offset") or 0) + 4
    data[log.chance.randrange(start + 4, start + vector["sizeInBytes"])] ^= 1 << log.chance.randrange(8)
    file.write_bytes(data)
    return ("vector-unreadable",)


@kind("vectors", avoids=["checkpointed"])
def a_vector_of_another_cardinality(log: Log) -> tuple[str, ...]:
    place = _with_vector(log)
    number = place.body["deletionVector"]["cardinality"]
    log.pick([None] * (number < place.stats["numRecords"]))
    _change_vector(log, place, cardinality=number + 1)
    return ("vector-cardinality-differs",)


@kind("vectors", avoids=["checkpointed"])
def a_vector_of_more_rows_than_the_file(log: Log) -> tuple[str, ...]:
    place = _with_vector(log)
    _change_vector(log, place, cardinality=place.stats["numRecords"] + log.chance.randrange(1, 99))
    return ("vector-outside-file",)


@kind("vectors", avoids=["checkpointed"])
def a_vector_without_statistics(log: Log) -> tuple[str, ...]:
    place = _with_vector(log)
    stats = place.stats
    del stats["numRecords"]
    log.change_stats(place, stats)
    return ("vector-without-num-records",)


@kind("vectors", avoids=["checkpointed"])
def a_vector_without_its_feature(log: Log) -> tuple[str, ...]:
    _with_vector(log)
    place = log.protocol()
    without = {
        name: [each for each in place.body.get(name) or () if each != "deletionVectors"]
        for name in ("readerFeatures", "writerFeatures")
    }
    log.change(place, "protocol", {**place.body, **without})
    return "vector-without-feature", "property-needs-feature"


@kind("vectors", avoids=["checkpointed"])
def a_vector_with_a_wrong_descriptor(log: Log) -> tuple[str, ...]:
    wrong: Line = log.chance.choice(({"sizeInBytes": 0}, {"pathOrInlineDv": "!"}, {"sizeInBytes": 0, "offset": 5}))
    _change_vector(log, _with_vector(log), **wrong)
    return ("vector-descriptor-invalid",)


@kind("vectors", avoids=["checkpointed"])
def a_file_with_two_vectors(log: Log) -> tuple[str, ...]:
    body = _with_vector(log).body
    log.append({"add": {name: value for name, value in body.items() if name != "deletionVector"}})
    return ("file-live-with-two-vectors",)


# ----------------------------------------------------------------------------------------------- row tracking


@kind("tracked")
def a_lost_row_id(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.recent(plain=False) if "baseRowId" in each.body)
    name = log.chance.choice(("baseRowId", "defaultRowCommitVersion"))
    log.change(place, "add", {key: value for key, value in place.body.items() if key != name})
    return ("row-id-missing",)


@kind("tracked")
def row_ids_of_another_file(log: Log) -> tuple[str, ...]:
    files = sorted(log.recent(plain=False), key=lambda each: each.body.get("baseRowId", -1))
    log.pick([None] * (len(files) > 1 and "baseRowId" in files[0].body))
    place = log.pick(files[1:])
    log.change(place, "add", {**place.body, "baseRowId": files[0].body["baseRowId"]})
    return ("row-id-overlap",)


@kind("tracked")
def a_row_id_above_the_mark(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.recent(plain=False) if "baseRowId" in each.body)
    log.change(place, "add", {**place.body, "baseRowId": 10**12})
    return ("row-id-high-water-mark",)


@kind("tracked")
def a_later_row_commit_version(log: Log) -> tuple[str, ...]:
    added = [each for each in log.of_kind("add") if "defaultRowCommitVersion" in each.body]
    paths = [each.body["path"] for each in added]
    place = log.pick(each for each in added if paths.count(each.body["path"]) == 1)
    log.change(place, "add", {**place.body, "defaultRowCommitVersion": place.version + log.chance.randrange(1, 9)})
    return ("row-commit-version-wrong",)


@kind("tracked")
def a_row_id_that_changes(log: Log) -> tuple[str, ...]:
    body = log.pick(each for each in log.recent(plain=False) if "baseRowId" in each.body).body
    log.append({"add": {**body, "baseRowId": body["baseRowId"] + 7}})
    return ("row-id-changed",)


@kind("tracked")
def a_mark_that_decreases(log: Log) -> tuple[str, ...]:
    marks = [each for each in log.of_kind("domainMetadata") if each.body["domain"] == "delta.rowTracking"]
    highest = log.pick(marks[-1:])
    number = int(re.findall(r"-?\d+", highest.body["configuration"])[0])
    log.pick([None] * (number > 0))
    body = {**highest.body, "configuration": json.dumps({"rowIdHighWaterMark": log.chance.randrange(number)})}
    log.append({"domainMetadata": body})
    return ("row-id-high-water-mark-decreased",)


@kind("tracked")
def a_remove_with_other_row_ids(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.of_kind("remove") if "baseRowId" in each.body)
    log.change(place, "remove", {**place.body, "baseRowId": place.body["baseRowId"] + 1})
    return ("remove-row-id-differs",)


# ------------------------------------------------------------------------------------------------ change data


@kind("changes")
def a_lost_change_file(log: Log) -> tuple[str, ...]:
    log.data(log.pick(log.of_kind("cdc"))).unlink()
    return ("cdc-file-missing",)


@kind("changes")
def a_change_file_with_data_change(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("cdc"))
    log.change(place, "cdc", {**place.body, "dataChange": True})
    return ("cdc-data-change",)


@kind()
def a_data_file_that_is_a_directory(log: Log) -> tuple[str, ...]:
    file = log.data(log.pick(log.live()))
    file.unlink()
    file.mkdir()
    return ("data-file-size-differs", "data-file-unreadable")


@kind()
def a_data_file_that_is_a_copy_of_the_log(log: Log) -> tuple[str, ...]:
    file = log.data(log.pick(log.live()))
    shutil.copy(log.commit(log.pick(log.versions)), file)
    return ("data-file-unreadable",)
