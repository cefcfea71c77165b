"""Faulty engines for the cases about table features: row tracking, type widening, variants, domains, columns, deletion
vectors, column mapping, sidecars, Iceberg compatibility."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltalog import DeltaTable
from deltalog.conformance.engines.deltalog import DeltalogEngine
from tests.support.conformance.mutants import Action, Edited, Rewriting, actions_of, caught_by, commits, log_of

NULL = {"metadata": b"\x01\x00\x00", "value": b"\x00"}


def with_schema(action: Action, change: Any) -> Action:
    """The action; in a metaData action, each field at any depth is changed by ``change``."""
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        _walk(schema, change)
        action["metaData"]["schemaString"] = json.dumps(schema)
    return action


def _walk(kind: Any, change: Any, depth: int = 0) -> None:
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            change(field, depth)
            _walk(field["type"], change, depth + 1)
        for key in ("elementType", "keyType", "valueType"):
            _walk(kind.get(key), change, depth + 1)


class Committing(DeltalogEngine):
    """Writes commits by hand, without any check."""

    def commit(self, path: str, *actions: Action) -> None:
        version = int(commits(path)[-1].stem) + 1
        lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, *actions]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (log_of(path) / f"{version:020d}.json").write_text(text)

    def metadata(self, path: str) -> Action:
        found = [action for file in commits(path) for action in actions_of(file) if "metaData" in action]
        return {"metaData": dict(found[-1]["metaData"])}

    def file(self, path: str, rows: pa.Table, partition: Mapping[str, str] | None = None) -> Action:
        name = f"careless-{int(commits(path)[-1].stem) + 1}.parquet"
        pq.write_table(rows, Path(path, name))
        size = Path(path, name).stat().st_size
        stats = json.dumps({"numRecords": rows.num_rows})
        return {
            "add": {
                "path": name, "partitionValues": dict(partition or {}), "size": size, "modificationTime": 0,
                "dataChange": True, "stats": stats,
            }
        }  # fmt: skip


# --------------------------------------------------------------------------------------------- row tracking


@caught_by("rows-append rows-append-supported")
class AssignsNoRowIds(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            action.get("add", {}).pop("baseRowId", None)
        return actions


@caught_by("rows-append rows-append-emptied rows-overwrite-append")
class StartsRowIdsAgain(Rewriting):
    """Counts row ids from 0 in every commit."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if "add" in action:
                action["add"]["baseRowId"] = 0
        return actions


@caught_by("rows-append rows-append-three")
class RecordsNoMark(Rewriting):
    """Assigns row ids without the domain metadata of the high-water mark."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return [action for action in actions if "domainMetadata" not in action]


@caught_by("rows-append rows-race-append-version")
class KeepsAnOldCommitVersion(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if "defaultRowCommitVersion" in action.get("add", {}):
                action["add"]["defaultRowCommitVersion"] = version - 1
        return actions


@caught_by("rows-overwrite-removes rows-delete-file")
class RemovesWithoutRowIds(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            action.get("remove", {}).pop("baseRowId", None)
        return actions


@caught_by("rows-reads-materialised*")
class ReadsFreshRowIds(Edited):
    """Ignores the materialised columns."""

    def edit(self, action: Action, root: Path) -> Action | None:
        for key in list(action.get("metaData", {}).get("configuration", {})):
            if "materialized" in key:
                action["metaData"]["configuration"][key] += "-other"
        return action

    def tracked_rows(self, path: str, version: int | None = None) -> Any:
        with self.copy(path) as copied:
            return super().tracked_rows(copied, version)


@caught_by("rows-reads-vector")
class CountsLivingRows(DeltalogEngine):
    """Numbers the rows of a file without those that its deletion vector removes."""

    def tracked_rows(self, path: str, version: int | None = None) -> Any:
        found = super().tracked_rows(path, version).sort_by("_row_id")
        numbers = pa.array(range(found.num_rows), pa.int64())
        return found.set_column(found.column_names.index("_row_id"), "_row_id", numbers)


@caught_by("rows-restore-append rows-restore-mark")
class RestoresTheMark(Rewriting):
    """A restore brings back the high-water mark of the restored version."""

    def restore(self, path: str, version: int) -> None:
        self._restored = version
        super().restore(path, version)

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        if not hasattr(self, "_restored"):
            return actions
        kept = [action for action in actions if "domainMetadata" not in action]
        found = [a for file in commits(path)[: self._restored + 1] for a in actions_of(file) if "domainMetadata" in a]
        return [*kept, found[-1]]


# --------------------------------------------------------------------------------------------- type widening


@caught_by("widening-refuses-*")
class TrustsTypeChanges(Edited):
    """Does not look at the recorded type changes."""

    def edit(self, action: Action, root: Path) -> Action | None:
        return with_schema(action, lambda field, depth: field["metadata"].pop("delta.typeChanges", None))


@caught_by("widening-reads-* widening-partition-*")
class ReadsTheOldType(Edited):
    def edit(self, action: Action, root: Path) -> Action | None:
        def narrow(field: Any, depth: int) -> None:
            changes = field["metadata"].get("delta.typeChanges", [])
            if changes and "fieldPath" not in changes[0]:
                field["type"] = changes[0]["fromType"]

        return with_schema(action, narrow)


@caught_by("widening-property-keeps-history widening-change-again")
class ForgetsTypeChanges(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return [with_schema(a, lambda field, depth: field["metadata"].pop("delta.typeChanges", None)) for a in actions]

    def set_type(self, path: str, column: str, type: str) -> None:
        known = self._known(path)
        super().set_type(path, column, type)
        self._after(path, known)


@caught_by("widening-change-refused-*")
class ChangesAnyType(Committing):
    def set_type(self, path: str, column: str, type: str) -> None:
        def change(field: Any, depth: int) -> None:
            if field["name"] == column:
                field["type"] = type

        self.commit(path, with_schema(self.metadata(path), change))


# --------------------------------------------------------------------------------------------- variants


class ReadsFiles(DeltalogEngine):
    """Reads the column v of the data files itself; the variants of each file are given to ``variant``."""

    def variant(self, found: Any) -> Any:
        raise NotImplementedError

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        adds = [action["add"] for file in commits(path) for action in actions_of(file) if "add" in action]
        rows = [row for add in adds for row in pq.read_table(Path(path, add["path"])).to_pylist()]
        return [{"id": row["id"], "v": self.variant(row["v"])} for row in rows]


@caught_by("variant-shredded-*")
class IgnoresShreddedColumns(ReadsFiles):
    def variant(self, found: Any) -> Any:
        return found and {"metadata": found["metadata"], "value": found.get("value") or b"\x00"}


@caught_by("variant-absent variant-shredded-long")
class TakesAbsentForNull(DeltalogEngine):
    """Returns a variant that is null where the row has no variant."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        rows = super().rows(path, version, timestamp_ms).to_pylist()
        return [{name: NULL if name == "v" and value is None else value for name, value in row.items()} for row in rows]


@caught_by("variant-dictionary-unsorted")
class SortsTheDictionary(DeltalogEngine):
    """Assumes that the names in a dictionary are sorted."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        rows = super().rows(path, version, timestamp_ms).to_pylist()
        for row in rows:
            if row["v"] is not None and row["v"]["metadata"].endswith(b"ba"):
                row["v"]["metadata"] = row["v"]["metadata"][:-2] + b"ab"
        return rows


# --------------------------------------------------------------------------------------------- domains, transactions


@caught_by("domain-append-keeps domain-overwrite-keeps clustering-append-keeps")
class DropsForeignDomains(Rewriting):
    """Every commit removes the domains that it does not set itself."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        found = {
            a["domainMetadata"]["domain"] for file in commits(path) for a in actions_of(file) if "domainMetadata" in a
        }
        gone = [{"domainMetadata": {"domain": name, "configuration": "{}", "removed": True}} for name in sorted(found)]
        return [*actions, *gone]


@caught_by("txn-same txn-earlier txn-repeated txn-checkpoint")
class AppendsAgain(DeltalogEngine):
    """Does not look at transaction identifiers."""

    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        self.append(path, rows)


@caught_by("txn-decreased")
class TakesTheGreatestTransaction(DeltalogEngine):
    def append_once(self, path: str, rows: pa.Table, application: str, application_version: int) -> None:
        found = [a["txn"]["version"] for file in commits(path) for a in actions_of(file) if "txn" in a]
        if application_version > max(found, default=-1):
            super().append_once(path, rows, application, application_version)


@caught_by("clustering-append clustering-append-nested feature-mapping-*-append-statistics")
class WritesNoBounds(Rewriting):
    """Statistics have the number of rows only."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            if "add" in action and version:
                action["add"]["stats"] = json.dumps({"numRecords": json.loads(action["add"]["stats"])["numRecords"]})
        return actions


# --------------------------------------------------------------------------------------------- columns


@caught_by("default-long default-string default-overwrite")
class WritesNullForDefaults(DeltalogEngine):
    def _filled(self, path: str, rows: pa.Table) -> pa.Table:
        schema = DeltaTable.open(path).schema.to_arrow()
        for field in schema:
            if field.name not in rows.column_names:
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows

    def append(self, path: str, rows: pa.Table) -> None:
        super().append(path, self._filled(path, rows))

    def overwrite(self, path: str, rows: pa.Table) -> None:
        super().overwrite(path, self._filled(path, rows))


@caught_by("identity-append-* identity-append-twice")
class KeepsTheIdentityMark(Rewriting):
    """Generates values without moving the high-water mark."""

    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        return [action for action in actions if version == 0 or "metaData" not in action]


@caught_by("constraint-nested-broken invariant-nested-broken invariant-required-* generated-wrong-*")
class ChecksNothing(Committing):
    def append(self, path: str, rows: pa.Table) -> None:
        self.commit(path, self.file(path, rows))


@caught_by("append-only-restore")
class RestoresAppendOnlyTables(Committing):
    def restore(self, path: str, version: int) -> None:
        adds = [a["add"] for file in commits(path)[version + 1 :] for a in actions_of(file) if "add" in a]
        self.commit(path, *({"remove": {"path": add["path"], "dataChange": True}} for add in adds))


# --------------------------------------------------------------------------------------------- deletion vectors


@caught_by("feature-vector-u-three feature-vector-u-gaps")
class ReadsTheFirstVector(Edited):
    """Ignores the offset of a deletion vector in its file."""

    def edit(self, action: Action, root: Path) -> Action | None:
        vector = action.get("add", {}).get("deletionVector")
        if vector and vector.get("offset"):
            vector["offset"] = 1
        return action


@caught_by("feature-vector-beyond-65536")
class ReadsOneContainer(DeltalogEngine):
    """Ignores the positions of a deletion vector from 65,536 on."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        found = super().rows(path, version, timestamp_ms)
        return pa.concat_tables([found, pa.table({"id": pa.array([65_536, 65_537], pa.int64())})])


@caught_by("feature-vector-write-overwrite feature-vector-write-again")
class RemovesWithoutVectors(Rewriting):
    def rewrite(self, actions: list[Action], version: int, path: str) -> list[Action]:
        for action in actions:
            action.get("remove", {}).pop("deletionVector", None)
        return actions


# --------------------------------------------------------------------------------------------- column mapping


@caught_by("feature-mapping-name-struct* feature-mapping-name-array*")
class MapsTopLevelsAlone(Edited):
    """Resolves fields of structs by their names in the schema."""

    def edit(self, action: Action, root: Path) -> Action | None:
        def unmap(field: Any, depth: int) -> None:
            if depth:
                field["metadata"]["delta.columnMapping.physicalName"] = field["name"]

        return with_schema(action, unmap)


@caught_by("feature-mapping-*-append-files feature-mapping-*-append-partition")
class WritesLogicalNames(Committing):
    def append(self, path: str, rows: pa.Table) -> None:
        (value,) = rows["p"].to_pylist()
        self.commit(path, self.file(path, rows.drop_columns(["p"]), {"p": value}))


# --------------------------------------------------------------------------------------------- other features


@caught_by("feature-icebergcompatv1-append feature-icebergcompatv2-append feature-materialized-partitions")
class LeavesPartitionsOut(Committing):
    """Writes to tables with any features, without the partition columns in the files."""

    def append(self, path: str, rows: pa.Table) -> None:
        (value,) = rows["p"].to_pylist()
        metadata = self.metadata(path)["metaData"]
        physical = "col-p" if "delta.columnMapping.mode" in metadata["configuration"] else "p"
        names = ["col-a"] if physical == "col-p" else ["id"]
        self.commit(path, self.file(path, rows.drop_columns(["p"]).rename_columns(names), {physical: value}))


@caught_by("feature-icebergcompatv*-vectors feature-icebergcompatv*-mapping feature-icebergcompatv*-other")
class SetsAnyProperty(Committing):
    def set_properties(self, path: str, properties: Mapping[str, str | None]) -> None:
        metadata = self.metadata(path)
        changed = {**metadata["metaData"]["configuration"], **properties}
        metadata["metaData"]["configuration"] = {key: value for key, value in changed.items() if value is not None}
        self.commit(path, metadata)


@caught_by("feature-collations-* feature-geometry-append")
class LosesColumnMetadata(Committing):
    """Writes the schema again, with what it knows of types and of the metadata of columns."""

    def append(self, path: str, rows: pa.Table) -> None:
        def plain(field: Any, depth: int) -> None:
            field["metadata"] = {}
            if isinstance(field["type"], str) and "(" in field["type"]:
                field["type"] = "binary"

        self.commit(path, with_schema(self.metadata(path), plain), self.file(path, rows))


@caught_by("checkpoint-protected-*")
class CleansProtectedVersions(DeltalogEngine):
    """Log clean-up that keeps the commits from the version 2 on."""

    def checkpoint(self, path: str) -> None:
        super().checkpoint(path)
        for file in commits(path)[:2]:
            file.unlink()


@caught_by("checkpoint-v2-sidecar-* checkpoint-v2-any-order")
class IgnoresSidecars(Edited):
    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        with self.copy(path) as copied:
            for file in log_of(copied).glob("*.checkpoint.*.json"):
                lines = [line for line in file.read_text().splitlines() if '"sidecar"' not in line]
                file.write_text("\n".join(lines) + "\n")
            return DeltalogEngine.rows(self, copied, version, timestamp_ms)

    def edit(self, action: Action, root: Path) -> Action | None:
        return action


@caught_by("feature-catalogmanaged-by-path*")
class OpensManagedTables(Committing):
    """Reads and writes a catalog-managed table by its path."""

    def rows(self, path: str, version: int | None = None, timestamp_ms: int | None = None) -> Any:
        return pa.table({"id": pa.array([0, 1], pa.int64())})

    def append(self, path: str, rows: pa.Table) -> None:
        self.commit(path, self.file(path, rows))
