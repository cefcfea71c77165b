"""Functions that damage the metaData action: schema, partition columns, properties, column mapping."""

from __future__ import annotations

from tests.support.doctor.damaged_tables import (
    Damage,
    append_commit,
    case,
    configure,
    edit_action,
    edit_schema,
    mapped,
    partitioned,
    plain,
)
from tests.support.doctor.damages.lines import INFO, metadata_at

SCHEMAS: list[Damage] = [
    case(
        "schema that is no JSON",
        plain,
        edit_action(0, "metaData", lambda m: m.update(schemaString="{")),
        "metadata-schema-invalid",
    ),
    case("unknown type", plain, edit_schema(0, lambda s: s["fields"][0].update(type="int128")), "schema-type-unknown"),
    case("no schema", plain, edit_action(0, "metaData", lambda m: m.pop("schemaString")), "metadata-schema-missing"),
    case(
        "column twice",
        plain,
        edit_schema(0, lambda s: s["fields"].append({**s["fields"][0], "name": "ID"})),
        "schema-column-twice",
    ),
    case(
        "other format",
        plain,
        edit_action(0, "metaData", lambda m: m["format"].update(provider="orc")),
        "metadata-format",
    ),
    case(
        "partition column of no name",
        partitioned,
        edit_action(0, "metaData", lambda m: m.update(partitionColumns=["x"])),
        "partition-column-unknown",
        "partition-values-missing",
    ),
    case(
        "partition column twice",
        partitioned,
        edit_action(0, "metaData", lambda m: m.update(partitionColumns=["day", "day"])),
        "partition-column-twice",
    ),
    case(
        "partition columns change",
        partitioned,
        lambda path: append_commit(INFO, metadata_at(path, partitionColumns=[]))(path),
        "partition-columns-changed",
    ),
    case(
        "other id", plain, lambda path: append_commit(INFO, metadata_at(path, id="other"))(path), "metadata-id-changed"
    ),
    case(
        "type changes",
        plain,
        lambda path: append_commit(
            INFO,
            metadata_at(path, schemaString=metadata_at(path)["metaData"]["schemaString"].replace("long", "string")),
        )(path),
        "column-type-changed",
    ),
    case("property that is no number", plain, configure(0, delta_checkpointInterval="often"), "property-invalid"),
    case("unknown property", plain, configure(0, delta_apendOnly="true"), "property-unknown"),
    case("mapping without feature", plain, configure(0, delta_columnMapping_mode="name"), "property-needs-feature"),
    case(
        "type without feature",
        plain,
        edit_schema(
            0, lambda s: s["fields"].append({"name": "t", "type": "timestamp_ntz", "nullable": True, "metadata": {}})
        ),
        "schema-needs-feature",
    ),
    case(
        "no physical name",
        mapped,
        edit_schema(0, lambda s: s["fields"][0]["metadata"].pop("delta.columnMapping.physicalName")),
        "column-mapping-name-missing",
    ),
    case(
        "no column id",
        mapped,
        edit_schema(0, lambda s: s["fields"][0]["metadata"].pop("delta.columnMapping.id")),
        "column-mapping-id-missing",
    ),
    case(
        "column id twice",
        mapped,
        edit_schema(0, lambda s: s["fields"][1]["metadata"].update({"delta.columnMapping.id": 1})),
        "column-mapping-id-twice",
    ),
    case(
        "physical name twice",
        mapped,
        edit_schema(
            0,
            lambda s: s["fields"][1]["metadata"].update(
                {"delta.columnMapping.physicalName": s["fields"][0]["metadata"]["delta.columnMapping.physicalName"]}
            ),
        ),
        "column-mapping-name-twice",
    ),
    case(
        "highest column id too low",
        mapped,
        configure(0, delta_columnMapping_maxColumnId="1"),
        "column-mapping-max-id-low",
    ),
]
