"""Named checks of what table features require of a log: row tracking, domains, columns, statistics, deletion vectors,
V2 checkpoints. ``log_checks`` has the others."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltalog.conformance import values
from deltalog.conformance.log_view import Checks, LogView, by_checkpoint
from deltalog.parquet.footers import open_parquet
from deltalog.protocol.row_tracking import ROW_COMMIT_VERSION, ROW_ID
from deltalog.read.snapshot import Snapshot
from deltalog.table import DeltaTable

CHECKS = Checks()
_check = CHECKS.named
_ROW_DOMAIN = "delta.rowTracking"
_ROW_COLUMNS = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_PHYSICAL, _FIELD_ID = "delta.columnMapping.physicalName", "delta.columnMapping.id"


# --------------------------------------------------------------------------------------------- row tracking


def _rows_in(add: Mapping[str, Any]) -> int:
    return int(json.loads(add.get("stats") or "{}").get("numRecords") or 0)


def _added_before(view: LogView, version: int) -> dict[str, dict[str, Any]]:
    """The last add of each path in the commits before a version."""
    earlier = [each for each in view.versions() if each < version]
    return {add["path"]: add for each in earlier for add in view.of_kind(each, "add")}


def _domains(view: LogView, until: int) -> dict[str, str]:
    """The configuration of each domain according to the commits up to a version."""
    found: dict[str, str] = {}
    for version in view.versions():
        for domain in view.of_kind(version, "domainMetadata") if version <= until else ():
            found.pop(domain["domain"], None)
            if not domain["removed"]:
                found[domain["domain"]] = domain["configuration"]
    return found


def _mark(view: LogView, until: int) -> int:
    return int(json.loads(_domains(view, until).get(_ROW_DOMAIN, "{}")).get("rowIdHighWaterMark", -1))


@_check("row-ids-fresh")
def _row_ids_fresh(view: LogView, version: int, value: Any) -> str | None:
    """The commit adds ``value`` new files (default: any number). Each of these has a baseRowId above the row id
    high-water mark of the previous version, and no two of them have a row id in common."""
    known = _added_before(view, version)
    new = [add for add in view.of_kind(version, "add") if add["path"] not in known]
    above = _mark(view, version - 1)
    for add in sorted(new, key=lambda add: add.get("baseRowId") or -1):
        base = add.get("baseRowId")
        if not isinstance(base, int) or base <= above:
            return f"the baseRowId of {add['path']} is {base}; it must be above {above}"
        above = base + _rows_in(add) - 1
    return None if value in (None, len(new)) else f"version {version} adds {len(new)} new files, not {value}"


@_check("row-ids-kept")
def _row_ids_kept(view: LogView, version: int, value: Any) -> str | None:
    """The adds and removes of the commit whose path was added before have the baseRowId and the
    defaultRowCommitVersion of the last add of this path. There are at least ``value`` of them (default: 1)."""
    known, number = _added_before(view, version), 0
    for kind in ("add", "remove"):
        for action in view.of_kind(version, kind):
            if action["path"] in known:
                number += 1
                found, wanted = _ids_of(action), _ids_of(known[action["path"]])
                if found != wanted:
                    return f"the {kind} of {action['path']} has the row id and commit version {found}, not {wanted}"
    return None if number >= (value or 1) else f"version {version} has {number} actions of files added before"


def _ids_of(action: Mapping[str, Any]) -> tuple[Any, Any]:
    return action.get("baseRowId"), action.get("defaultRowCommitVersion")


@_check("row-commit-versions")
def _row_commit_versions(view: LogView, version: int, value: Any) -> str | None:
    """The new files of the commit have its version as defaultRowCommitVersion."""
    known = _added_before(view, version)
    new = [add for add in view.of_kind(version, "add") if add["path"] not in known]
    found = [add.get("defaultRowCommitVersion") for add in new]
    return None if found == [version] * len(found) else f"the defaultRowCommitVersion of the new files is {found}"


@_check("row-id-mark")
def _row_id_mark(view: LogView, version: int, value: Any) -> str | None:
    """The row id high-water mark of the version is at or above every row id assigned so far, and not below any earlier
    mark."""
    highest = max((_mark(view, each) for each in view.versions() if each < version), default=-1)
    for each in view.versions():
        for add in view.of_kind(each, "add") if each <= version else ():
            if isinstance(add.get("baseRowId"), int):
                highest = max(highest, add["baseRowId"] + _rows_in(add) - 1)
    mark = _mark(view, version)
    return None if mark >= highest else f"the high-water mark is {mark}; row ids up to {highest} were assigned"


@_check("no-row-ids")
def _no_row_ids(view: LogView, version: int, value: Any) -> str | None:
    """The adds of the commit have neither baseRowId nor defaultRowCommitVersion."""
    found = [add["path"] for add in view.of_kind(version, "add") if _ids_of(add) != (None, None)]
    return f"{found[0]} has a row id" if found else None


@_check("row-ids-complete")
def _row_ids_complete(view: LogView, version: int, value: Any) -> str | None:
    """Every live file has a baseRowId and a defaultRowCommitVersion if row tracking is enabled."""
    if view.configuration().get("delta.enableRowTracking") != "true":
        return None
    live = _live(view, version)
    found = [add["path"] for add in live.values() if None in _ids_of(add)]
    return f"{found[0]} has no row id although row tracking is enabled" if found else None


def _live(view: LogView, until: int) -> dict[tuple[str, str | None], dict[str, Any]]:
    """The live files by path and id of the deletion vector, according to the commits up to a version."""
    live: dict[tuple[str, str | None], dict[str, Any]] = {}
    for version in [each for each in view.versions() if each <= until]:
        for remove in view.of_kind(version, "remove"):
            live.pop(_key(remove), None)
        for add in view.of_kind(version, "add"):
            for key in [key for key in live if key[0] == add["path"]]:
                del live[key]
            live[_key(add)] = add
    return live


def _key(action: Mapping[str, Any]) -> tuple[str, str | None]:
    vector = action.get("deletionVector")
    if vector is None:
        return action["path"], None
    unique = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return action["path"], unique if vector.get("offset") is None else f"{unique}@{vector['offset']}"


@_check("row-ids")
def _row_ids(view: LogView, version: int, value: Any) -> str | None:
    """The rows of the version with their stable row ids and row commit versions, read by deltalog, are ``value``."""
    return _tracked(DeltaTable.open(str(view.root)).snapshot(version), value)


@_check("row-ids-by-checkpoint")
def _row_ids_by_checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """Like ``row-ids``, for the latest version, without the commits up to the newest checkpoint."""
    with by_checkpoint(view) as snapshot:
        return _tracked(snapshot, value)


def _tracked(snapshot: Snapshot, value: Any) -> str | None:
    names = [*snapshot.schema.names, "_row_id", "_row_commit_version"]
    found = snapshot.scan([*snapshot.schema.names, ROW_ID, ROW_COMMIT_VERSION]).to_arrow().rename_columns(names)
    return values.difference(values.rows_of(found), values.canonical_rows(value))


@_check("row-columns-named")
def _row_columns_named(view: LogView, version: int, value: Any) -> str | None:
    """If row tracking is enabled, two properties name the columns of row ids and row commit versions. The names differ,
    and no column of the table has one of them, neither as its name nor as its physical name."""
    configuration = view.configuration()
    if configuration.get("delta.enableRowTracking") != "true":
        return None
    names = [configuration.get(key) for key in _ROW_COLUMNS]
    taken = {name for field in _fields(view) for name in (field["name"], field["metadata"].get(_PHYSICAL))}
    good = None not in names and names[0] != names[1] and not taken & set(names)
    return None if good else f"the columns of row ids and row commit versions are named {names}"


# --------------------------------------------------------------------------------------------- domains


@_check("domain")
def _domain(view: LogView, version: int, value: Any) -> str | None:
    """The metadata domains in ``value`` have these configurations, compared as JSON without the name of the domain,
    which delta-spark repeats; null means that the domain must be absent."""
    state = _domains(view, version)
    found = {name: _configuration(state[name]) if name in state else None for name in value}
    return None if found == value else f"the metadata domains are {found}, not {value}"


@_check("domain-by-checkpoint")
def _domain_by_checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """Like ``domain``, for a reader that reads only the checkpoint."""
    with by_checkpoint(view) as snapshot:
        state = {domain.domain: _configuration(domain.configuration) for domain in snapshot.domain_metadata}
    found = {name: state.get(name) for name in value}
    return None if found == value else f"the metadata domains are {found}, not {value}"


def _configuration(text: str) -> Any:
    found = json.loads(text)
    return {key: each for key, each in found.items() if key != "domainName"} if isinstance(found, dict) else found


@_check("checkpoint-has-no-domain")
def _checkpoint_without_domain(view: LogView, version: int, value: Any) -> str | None:
    """A reader that reads only the checkpoint does not find the metadata domain ``value``."""
    with by_checkpoint(view) as snapshot:
        found = [domain.domain for domain in snapshot.domain_metadata]
    return f"the checkpoint contains the metadata domain {value}" if value in found else None


@_check("transactions")
def _transactions(view: LogView, version: int, value: Any) -> str | None:
    """The transaction identifiers in the commits up to the version: for each application in ``value``, the latest
    version is this one; null means that there must be none."""
    state = {
        txn["appId"]: txn["version"] for each in view.versions() if each <= version for txn in view.of_kind(each, "txn")
    }
    found = {name: state.get(name) for name in value}
    return None if found == value else f"the transaction identifiers are {found}, not {value}"


# --------------------------------------------------------------------------------------------- columns


def _fields(view: LogView) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(view.latest_of("metaData")["schemaString"])["fields"]
    return found


def _column(view: LogView, path: str) -> dict[str, Any] | None:
    """The column or field of a struct with this path, in which dots separate the names."""
    fields: list[dict[str, Any]] = _fields(view)
    found = None
    for name in path.split("."):
        found = next((field for field in fields if field["name"] == name), None)
        if found is None:
            return None
        kind = found["type"]
        while isinstance(kind, dict) and kind["type"] == "array":
            kind = kind["elementType"]
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else []
    return found


@_check("column-metadata")
def _column_metadata(view: LogView, version: int, value: Any) -> str | None:
    """For each column in ``value``, the latest schema has these values in the metadata of the column; null means that a
    key must be absent."""
    for path, wanted in value.items():
        metadata = (_column(view, path) or {}).get("metadata") or {}
        found = {key: metadata.get(key) for key in wanted}
        if found != wanted:
            return f"the metadata of column {path} is {found}, not {wanted}"
    return None


@_check("column-types")
def _column_types(view: LogView, version: int, value: Any) -> str | None:
    """The columns in ``value`` have these types in the latest schema."""
    found = {path: (_column(view, path) or {}).get("type") for path in value}
    return None if found == value else f"the types of the columns are {found}, not {value}"


@_check("identity-values")
def _identity_values(view: LogView, version: int, value: Any) -> str | None:
    """The rows of the version, read by deltalog: no two have the same value in the identity column ``value``, and the
    high-water mark of the column is its last value in the direction of its step. The value in each row beyond those of
    version 0 is start + k * step with k ≥ 0."""
    metadata = (_column(view, value) or {}).get("metadata") or {}
    start, step = metadata["delta.identity.start"], metadata["delta.identity.step"]
    table = DeltaTable.open(str(view.root))
    first, found = (table.snapshot(each).scan([value]).to_arrow()[value].to_pylist() for each in (0, version))
    if None in found or len(set(found)) < len(found):
        return f"the values of the identity column {value} are {found}"
    wrong = [each for each in set(found) - set(first) if (each - start) % step or (each - start) // step < 0]
    if wrong:
        return f"the identity column {value} has the values {wrong}, which do not follow from {start} and {step}"
    last, mark = (max if step > 0 else min)(found), metadata.get("delta.identity.highWaterMark")
    good = mark is not None and (mark >= last if step > 0 else mark <= last)
    return None if good else f"the high-water mark of {value} is {mark}, its last value {last}"


@_check("identity-values-if-any")
def _identity_values_if_any(view: LogView, version: int, value: Any) -> str | None:
    """Like ``identity-values``; passes if the table has no rows."""
    return None if not _live(view, version) else _identity_values(view, version, value)


@_check("identity-beyond")
def _identity_beyond(view: LogView, version: int, value: Any) -> str | None:
    """The rows that the commit adds have values in the identity column that are beyond the number in ``value``, in the
    direction of its step. Passes for version 0."""
    ((name, mark),) = value.items()
    step = ((_column(view, name) or {}).get("metadata") or {})["delta.identity.step"]
    for add, file in _files_added(view, version) if version else ():
        found = file.read([name])[name].to_pylist()
        if any((each - mark) * step <= 0 for each in found):
            return f"{add['path']} has the values {found} in the identity column {name}, not beyond {mark}"
    return None


# --------------------------------------------------------------------------------------------- files


def _files_added(view: LogView, version: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """The adds of a commit, each with its file."""
    for add in view.of_kind(version, "add"):
        place = view.root / urllib.parse.unquote(add["path"])
        with pa.OSFile(str(place)) as source, open_parquet(source) as file:
            yield add, file


@_check("statistics-of")
def _statistics_of(view: LogView, version: int, value: Any) -> str | None:
    """Each file that the commit adds has a smallest value, a largest value and the number of nulls of each column in
    ``value``, whose paths consist of physical names separated by dots."""
    adds = view.of_kind(version, "add")
    for add in adds:
        stats = json.loads(add.get("stats") or "{}")
        for path in value:
            for kind in ("minValues", "maxValues", "nullCount"):
                if _at(stats.get(kind), path) is None:
                    return f"{add['path']} has no {kind} of {path}"
    return None if adds else f"version {version} adds no file"


@_check("statistics-are")
def _statistics_are(view: LogView, version: int, value: Any) -> str | None:
    """For each kind of statistics in ``value`` (minValues, maxValues, nullCount) and each column: the files that the
    commit adds have these values, in any order; null means that there must be none."""
    for kind, columns in value.items():
        for path, wanted in columns.items():
            stats = [json.loads(add.get("stats") or "{}").get(kind) for add in view.of_kind(version, "add")]
            found = sorted((_at(each, path) for each in stats), key=repr)
            if found != sorted(wanted, key=repr):
                return f"the {kind} of {path} are {found}, not {wanted}"
    return None


def _at(stats: Any, path: str) -> Any:
    for name in path.split("."):
        stats = stats.get(name) if isinstance(stats, Mapping) else None
    return stats


@_check("clustering-providers")
def _clustering_providers(view: LogView, version: int, value: Any) -> str | None:
    """The clusteringProvider of the files that the commit adds is one of ``value``; null means none."""
    found = [add.get("clusteringProvider") for add in view.of_kind(version, "add")]
    good = found and all(each in value for each in found)
    return None if good else f"the clusteringProvider of the files is {found}"


@_check("physical-columns")
def _physical_columns(view: LogView, version: int, value: Any) -> str | None:
    """The files that the commit adds have the physical names and ids of the columns of the table, at every depth."""
    partitioned = set(view.latest_of("metaData")["partitionColumns"])
    wanted = {
        name: number
        for name, number in _physical(_fields(view))
        if name.split(".")[0] not in _physicals(view, partitioned)
    }
    for add, file in _files_added(view, version):
        found = dict(_in_file(file.schema_arrow, ""))
        lacking = {name: number for name, number in wanted.items() if found.get(name) != number}
        if lacking:
            return f"{add['path']} has the columns and ids {found}, but lacks {lacking}"
    return None


def _physicals(view: LogView, names: set[str]) -> set[str]:
    return {field["metadata"][_PHYSICAL] for field in _fields(view) if field["name"] in names}


def _physical(fields: list[dict[str, Any]], above: str = "") -> Iterator[tuple[str, int]]:
    for field in fields:
        name = above + field["metadata"][_PHYSICAL]
        yield name, field["metadata"][_FIELD_ID]
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "struct":
            yield from _physical(kind["fields"], name + ".")


def _in_file(fields: Any, above: str) -> Iterator[tuple[str, int | None]]:
    for field in fields:
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        yield above + field.name, None if number is None else int(number)
        if hasattr(field.type, "fields"):
            yield from _in_file(field.type.fields, above + field.name + ".")


@_check("columns-in-files")
def _columns_in_files(view: LogView, version: int, value: Any) -> str | None:
    """The files that the commit adds have the columns ``value``, and the log has their number of rows."""
    for add, file in _files_added(view, version):
        missing = [name for name in value if name not in file.schema_arrow.names]
        if missing:
            return f"{add['path']} lacks the columns {missing}"
        if _rows_in(add) != file.metadata.num_rows:
            return f"the numRecords of {add['path']} is {_rows_in(add)}, the file has {file.metadata.num_rows} rows"
    return None


@_check("columns-not-in-files")
def _columns_not_in_files(view: LogView, version: int, value: Any) -> str | None:
    """The files that the commit adds lack the columns ``value``."""
    for add, file in _files_added(view, version):
        found = [name for name in value if name in file.schema_arrow.names]
        if found:
            return f"{add['path']} has the columns {found}"
    return None


@_check("variants-unshredded")
def _variants_unshredded(view: LogView, version: int, value: Any) -> str | None:
    """In the files that the commit adds, the variant column ``value`` consists of metadata and value alone."""
    for add, file in _files_added(view, version):
        found = sorted(child.name for child in file.schema_arrow.field(value).type)
        if found != ["metadata", "value"]:
            return f"the column {value} of {add['path']} has the fields {found}"
    return None


@_check("variant-rows-one-of")
def _variant_rows_one_of(view: LogView, version: int, value: Any) -> str | None:
    """The rows of the version, read by deltalog, equal one of the lists of rows in ``value``, whose first element names
    the variant column. A variant is JSON text."""
    name, wanted = value
    found = values.rows_of(DeltaTable.open(str(view.root)).snapshot(version).scan().to_arrow(), [name])
    wrong = [values.difference(found, values.canonical_rows(values.with_variants(rows, [name]))) for rows in wanted]
    return None if None in wrong else wrong[-1]


@_check("row-count-one-of")
def _row_count(view: LogView, version: int, value: Any) -> str | None:
    """The number of rows of the version, read by deltalog, is one of ``value``."""
    found = DeltaTable.open(str(view.root)).snapshot(version).scan().to_arrow().num_rows
    return None if found in value else f"the table has {found} rows, not {' or '.join(map(str, value))}"


@_check("shredding-supported")
def _shredding_supported(view: LogView, version: int, value: Any) -> str | None:
    """If delta.enableVariantShredding is true, the protocol lists the feature variantShredding for readers and
    writers."""
    protocol = view.latest_of("protocol")
    on = view.configuration().get("delta.enableVariantShredding") == "true"
    names = [protocol.get(f"{who}Features") or () for who in ("reader", "writer")]
    good = all({"variantShredding", "variantShredding-preview"} & set(each) for each in names)
    return None if good or not on else f"shredding is enabled, but the protocol is {protocol}"


# --------------------------------------------------------------------------------------------- deletion vectors


@_check("vectors")
def _vectors(view: LogView, version: int, value: Any) -> str | None:
    """The commit adds ``value`` files with a deletion vector."""
    found = sum("deletionVector" in add for add in view.of_kind(version, "add"))
    return None if found == value else f"version {version} adds {found} files with a deletion vector, not {value}"


@_check("vectors-are-counted")
def _vectors_are_counted(view: LogView, version: int, value: Any) -> str | None:
    """The files with a deletion vector that the commit adds have numRecords, which is the number of rows in the file;
    the deletion vectors have ``value`` rows in all according to their cardinality. Passes if there is no such
    file."""
    total = None
    for add, file in _files_added(view, version):
        if "deletionVector" in add:
            total = (total or 0) + add["deletionVector"]["cardinality"]
            if _rows_in(add) != file.metadata.num_rows:
                return f"the numRecords of {add['path']} is {_rows_in(add)}, the file has {file.metadata.num_rows} rows"
    return None if total in (None, value) else f"the deletion vectors have {total} rows, not {value}"


@_check("removes-are-live")
def _removes_are_live(view: LogView, version: int, value: Any) -> str | None:
    """Each remove of the commit names a file that was live in the previous version, with the deletion vector that it
    had. There are at least ``value`` of them (default: 1)."""
    live, removes = _live(view, version - 1), view.of_kind(version, "remove")
    for remove in removes:
        if _key(remove) not in live:
            return f"version {version} removes {_key(remove)}, which was not live"
    return None if len(removes) >= (value or 1) else f"version {version} removes {len(removes)} files"


# --------------------------------------------------------------------------------------------- kept log files


@_check("cleaned-together")
def _cleaned_together(view: LogView, version: int, value: Any) -> str | None:
    """All commits before version ``value`` are there, or none of them and no checkpoint; the log then begins with a
    checkpoint of this version or a later one."""
    before = range(min(value, version + 1))
    kept, checkpoints = [each for each in view.versions() if each in before], view.checkpoints()
    if kept == list(before) or (not kept and checkpoints and min(checkpoints) >= value):
        return None
    return f"of the protected versions before {value}, the commits {kept} are left, and checkpoints of {checkpoints}"


@_check("one-iceberg-compat")
def _one_iceberg_compat(view: LogView, version: int, value: Any) -> str | None:
    """At most one of the properties delta.enableIcebergCompatV1, V2 and V3 is true."""
    configuration = view.configuration()
    found = [f"V{n}" for n in (1, 2, 3) if configuration.get(f"delta.enableIcebergCompatV{n}") == "true"]
    return None if len(found) <= 1 else f"the Iceberg compatibilities {found} are enabled"


@_check("v2-checkpoint")
def _v2_checkpoint(view: LogView, version: int, value: Any) -> str | None:
    """There is a checkpoint of version ``value`` that follows the V2 spec and is not in parts: it has one
    checkpointMetadata with this version, all of its sidecars exist with the recorded size, and file actions are either
    all in sidecars or all in the checkpoint."""
    log = view.root / "_delta_log"
    files = [file for file in log.iterdir() if file.name.startswith(f"{value:020d}.checkpoint.")]
    if not files or any(len(file.name.split(".")) == 5 for file in files):
        return f"the checkpoints of version {value} are {sorted(file.name for file in files)}"
    wrong = [_v2_file(file, value) for file in files]
    return None if None in wrong else wrong[0]


def _rows_of(checkpoint: Path) -> list[dict[str, Any]]:
    if checkpoint.suffix == ".json":
        return [json.loads(line) for line in checkpoint.read_text(encoding="utf-8").splitlines()]
    with pa.OSFile(str(checkpoint)) as source, open_parquet(source) as file:
        rows: list[dict[str, Any]] = file.read().to_pylist()
    return rows


def _v2_file(file: Path, version: int) -> str | None:
    rows = _rows_of(file)
    kinds = {kind: [row[kind] for row in rows if row.get(kind) is not None] for kind in _KINDS}
    if [each["version"] for each in kinds["checkpointMetadata"]] != [version]:
        return f"{file.name} has the checkpointMetadata {kinds['checkpointMetadata']}"
    if kinds["sidecar"] and (kinds["add"] or kinds["remove"]):
        return f"{file.name} has both sidecars and file actions"
    for sidecar in kinds["sidecar"]:
        place = file.parent / "_sidecars" / urllib.parse.unquote(sidecar["path"]).rsplit("/", 1)[-1]
        if not place.is_file() or place.stat().st_size != sidecar["sizeInBytes"]:
            return f"the sidecar {sidecar['path']} of {file.name} is not there, or has another size"
    return None


_KINDS = ("checkpointMetadata", "sidecar", "add", "remove")
