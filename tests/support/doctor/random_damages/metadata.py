"""Random damages to metaData and protocol actions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.doctor.random_damages.kinds import kind
from tests.support.doctor.random_damages.log import Line, Log

_ID, _NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"


def _schema(log: Log, change: Callable[[Line], object]) -> None:
    """Change the schema of the latest metaData action."""
    place = log.metadata()
    schema = json.loads(place.body["schemaString"])
    change(schema)
    log.change(place, "metaData", {**place.body, "schemaString": json.dumps(schema)})


def _metadata(log: Log, **fields: object) -> None:
    place = log.metadata()
    log.change(place, "metaData", {**place.body, **fields})


def _properties(log: Log, **properties: str) -> None:
    more = {f"delta.{name.replace('_', '.')}": text for name, text in properties.items()}
    _metadata(log, configuration={**log.properties(), **more})


def _protocol(log: Log, change: Callable[[Line], object]) -> None:
    place = log.protocol()
    body = json.loads(json.dumps(place.body))
    change(body)
    log.change(place, "protocol", body)


# -------------------------------------------------------------------------------------------------------- schema


@kind()
def a_schema_of_other_bytes(log: Log) -> tuple[str, ...]:
    text = log.metadata().body["schemaString"]
    _metadata(log, schemaString=log.chance.choice((text[:-1], "[]", '{"type":"struct"}', text.replace("name", "n"))))
    return ("metadata-schema-invalid",)


@kind()
def no_schema(log: Log) -> tuple[str, ...]:
    _metadata(log, schemaString="")
    return ("metadata-schema-missing",)


@kind()
def a_column_of_an_unknown_type(log: Log) -> tuple[str, ...]:
    _schema(log, lambda schema: schema["fields"][0].update(type=log.chance.choice(("uuid", "int128", "varlong"))))
    return ("schema-type-unknown",)


@kind()
def a_column_twice(log: Log) -> tuple[str, ...]:
    def change(schema: Line) -> None:
        column = log.pick(schema["fields"])
        schema["fields"].append({**column, "name": column["name"].upper()})

    _schema(log, change)
    return ("schema-column-twice",)


@kind(avoids=["mapped"])
def a_column_whose_name_needs_mapping(log: Log) -> tuple[str, ...]:
    more: dict[str, Any] = {
        "name": log.chance.choice(("a b", "a;b", "a=b")),
        "type": "long",
        "nullable": True,
        "metadata": {},
    }
    _schema(log, lambda schema: schema["fields"].append(more))
    return ("schema-column-name",)


@kind()
def an_invalid_key_of_a_column(log: Log) -> tuple[str, ...]:
    key, wrong = log.chance.choice((("comment", 5), ("delta.generationExpression", 1), ("CURRENT_DEFAULT", 1)))
    _schema(log, lambda schema: log.pick(schema["fields"])["metadata"].update({key: wrong}))
    return ("schema-key-invalid",)


@kind()
def a_constraint_that_cannot_be_parsed(log: Log) -> tuple[str, ...]:
    _properties(log, constraints_broken=log.chance.choice(("id >", "nowhere > 1", "((", "id")))
    return ("constraint-invalid",)


@kind()
def a_generated_column_that_cannot_be_parsed(log: Log) -> tuple[str, ...]:
    _schema(log, lambda schema: schema["fields"][1]["metadata"].update({"delta.generationExpression": "f(("}))
    return ("generated-column-invalid",)


@kind()
def an_invariant_that_cannot_be_parsed(log: Log) -> tuple[str, ...]:
    _schema(log, lambda schema: schema["fields"][0]["metadata"].update({"delta.invariants": "{"}))
    return ("invariant-invalid",)


@kind(avoids=["mapped", "tracked", "changes"])
def a_column_of_another_type(log: Log) -> tuple[str, ...]:
    """Files with the old type are live."""
    body = json.loads(json.dumps(log.metadata().body))
    schema = json.loads(body["schemaString"])
    schema["fields"][0]["type"] = log.chance.choice(("string", "boolean", "integer"))
    log.pick(log.live())
    log.append({"metaData": {**body, "schemaString": json.dumps(schema)}})
    return ("column-type-changed",)


@kind(avoids=["mapped", "tracked", "changes"])
def a_wider_type_that_is_not_recorded(log: Log) -> tuple[str, ...]:
    body = json.loads(json.dumps(log.metadata().body))
    schema = json.loads(body["schemaString"])
    schema["fields"][0]["type"] = "decimal(20,0)"
    log.pick(log.live())
    log.append({"metaData": {**body, "schemaString": json.dumps(schema)}})
    return ("type-change-unrecorded",)


@kind()
def a_type_change_to_a_narrower_type(log: Log) -> tuple[str, ...]:
    change = {"fromType": "long", "toType": log.chance.choice(("integer", "string", "byte"))}
    _schema(log, lambda schema: schema["fields"][0]["metadata"].update({"delta.typeChanges": [change]}))
    return ("type-change-invalid",)


@kind()
def a_column_that_may_not_be_null_counts_nulls(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.recent() if each.version > log.metadata().version and each.stats)
    _schema(log, lambda schema: schema["fields"][0].update(nullable=False))
    stats = place.stats
    fields = json.loads(log.metadata().body["schemaString"])["fields"]
    name = fields[0]["metadata"].get(_NAME, fields[0]["name"])
    log.change_stats(place, {**stats, "nullCount": {**stats.get("nullCount", {}), name: 1}})
    return ("stats-null-in-required-column",)


# ------------------------------------------------------------------------------------------------- partitions


@kind()
def an_unknown_partition_column(log: Log) -> tuple[str, ...]:
    _metadata(log, partitionColumns=["nowhere"])
    return ("partition-column-unknown",)


@kind("partitioned")
def a_partition_column_twice(log: Log) -> tuple[str, ...]:
    _metadata(log, partitionColumns=[*log.metadata().body["partitionColumns"], "DAY"])
    return ("partition-column-twice",)


@kind("partitioned", avoids=["mapped"])
def other_partition_columns(log: Log) -> tuple[str, ...]:
    log.pick(log.live())
    log.append({"metaData": {**log.metadata().body, "partitionColumns": []}})
    return ("partition-columns-changed",)


@kind()
def another_table_id(log: Log) -> tuple[str, ...]:
    log.append({"metaData": {**log.metadata().body, "id": "another"}})
    return ("metadata-id-changed",)


@kind()
def another_format(log: Log) -> tuple[str, ...]:
    _metadata(log, format={"provider": log.chance.choice(("orc", "avro", "")), "options": {}})
    return ("metadata-format",)


# ---------------------------------------------------------------------------------------------- column mapping


@kind("mapped")
def a_lost_column_id(log: Log) -> tuple[str, ...]:
    _schema(log, lambda schema: log.pick(schema["fields"])["metadata"].pop(_ID))
    return ("column-mapping-id-missing",)


@kind("mapped")
def a_lost_physical_name(log: Log) -> tuple[str, ...]:
    _schema(log, lambda schema: log.pick(schema["fields"])["metadata"].pop(_NAME))
    return ("column-mapping-name-missing",)


@kind("mapped")
def a_column_id_twice(log: Log) -> tuple[str, ...]:
    def change(schema: Line) -> None:
        one, *others = schema["fields"]
        log.pick(others)["metadata"][_ID] = one["metadata"][_ID]

    _schema(log, change)
    return ("column-mapping-id-twice",)


@kind("mapped")
def a_physical_name_twice(log: Log) -> tuple[str, ...]:
    def change(schema: Line) -> None:
        one, *others = schema["fields"]
        log.pick(others)["metadata"][_NAME] = one["metadata"][_NAME]

    _schema(log, change)
    return ("column-mapping-name-twice",)


@kind("mapped")
def a_largest_column_id_that_is_too_small(log: Log) -> tuple[str, ...]:
    _properties(log, columnMapping_maxColumnId=log.chance.choice(("0", "1", "x")))
    return ("column-mapping-max-id-low",)


# ------------------------------------------------------------------------------------------ protocol, properties


@kind()
def a_protocol_of_an_unknown_version(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body.update(minWriterVersion=log.chance.randrange(8, 99)))
    return ("protocol-version-unknown",)


@kind("timed")
def a_protocol_without_its_lists(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body.pop("writerFeatures"))
    return ("feature-list-missing",)


@kind("timed")
def a_list_at_a_version_without_lists(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body.update(minWriterVersion=6))
    return ("feature-list-unexpected",)


@kind("vectors")
def a_feature_that_readers_do_not_list(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["readerFeatures"].remove("deletionVectors"))
    return ("feature-only-in-writer",)


@kind("vectors")
def a_feature_that_writers_do_not_list(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["writerFeatures"].remove("deletionVectors"))
    return ("feature-only-in-reader",)


@kind("vectors", "timed")
def a_feature_that_readers_need_not_list(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["readerFeatures"].append("inCommitTimestamp"))
    return ("feature-not-for-readers",)


@kind("timed")
def a_feature_twice(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["writerFeatures"].append(log.pick(body["writerFeatures"])))
    return ("feature-listed-twice",)


@kind("timed")
def an_unknown_feature(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["writerFeatures"].append("novelty"))
    return ("feature-unknown",)


@kind("tracked")
def a_feature_without_what_it_requires(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["writerFeatures"].remove("domainMetadata"))
    return ("feature-requires-other",)


@kind("timed")
def timestamps_without_their_feature(log: Log) -> tuple[str, ...]:
    _protocol(log, lambda body: body["writerFeatures"].remove("inCommitTimestamp"))
    return ("ict-property-without-feature",)


@kind()
def a_lowered_protocol(log: Log) -> tuple[str, ...]:
    body = log.protocol().body
    log.pick([None] * (body["minWriterVersion"] > 2))
    log.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
    return ("protocol-lowered",)


@kind()
def a_property_with_a_wrong_value(log: Log) -> tuple[str, ...]:
    name, wrong = log.chance.choice(
        (("appendOnly", "perhaps"), ("checkpointInterval", "-1"), ("logRetentionDuration", "for ever"),
         ("deletedFileRetentionDuration", "x"), ("checkpointPolicy", "v9"))
    )  # fmt: skip
    _properties(log, **{name: wrong})
    return ("property-invalid",)


@kind()
def an_unknown_property(log: Log) -> tuple[str, ...]:
    _properties(log, novelty="1")
    return ("property-unknown",)


@kind(avoids=["tracked"])
def a_property_without_its_feature(log: Log) -> tuple[str, ...]:
    _properties(log, enableRowTracking="true")
    return ("property-needs-feature",)


@kind()
def an_append_only_table_with_removes(log: Log) -> tuple[str, ...]:
    first = log.metadata()
    log.pick(
        each for each in log.of_kind("remove") if each.version >= first.version and each.body.get("dataChange", True)
    )
    _properties(log, appendOnly="true")
    return ("append-only-violated",)


@kind()
def domain_metadata_without_the_feature(log: Log) -> tuple[str, ...]:
    log.pick([None] * ("domainMetadata" not in (log.protocol().body.get("writerFeatures") or ())))
    log.append({"domainMetadata": {"domain": "of.tests", "configuration": "", "removed": False}})
    return ("domain-without-feature",)


@kind(avoids=["partitioned", "tracked"])
def clustering_by_no_column(log: Log) -> tuple[str, ...]:
    body = log.protocol().body
    features = [*dict.fromkeys((*(body.get("writerFeatures") or ()), "clustering", "domainMetadata"))]
    domain = json.dumps({"clusteringColumns": [["nowhere"]]})
    log.append(
        {"protocol": {**body, "minWriterVersion": 7, "writerFeatures": features}},
        {"domainMetadata": {"domain": "delta.clustering", "configuration": domain, "removed": False}},
    )
    return ("clustering-column-unknown",)


@kind()
def a_log_without_its_first_actions(log: Log) -> tuple[str, ...]:
    name, rule = log.chance.choice((("protocol", "protocol-missing"), ("metaData", "metadata-missing")))
    log.without_derived()
    log.write(0, [line for line in log.lines(0) if name not in line])
    return (rule,)
