"""The damaged tables by which the doctor is tested: which rules it must find in each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.doctor.damaged_tables import (
    LARGEST,
    Damage,
    add_line,
    again,
    append_commit,
    both,
    case,
    checkpointed,
    checkpointed_v2,
    clone_pair,
    commit,
    compacted,
    compaction_edit,
    configure,
    constrained,
    copied_earlier,
    copy,
    data_file,
    delete,
    edit,
    edit_action,
    edit_checkpoint,
    edit_crc,
    edit_hint,
    edit_schema,
    edit_stats,
    edit_top,
    first_add,
    ict_of,
    log,
    mapped,
    overwrite,
    partitioned,
    partitioned_by_number,
    plain,
    poisoned,
    rename,
    rewrite_rows,
    set_ict,
    spelled_otherwise,
    timed,
    timed_late,
    timed_off,
    tracked,
    truncate,
    vector_field,
    with_second_vector,
    with_vector_file,
    with_vectors,
    without,
)

INFO: dict[str, Any] = {"commitInfo": {"operation": "WRITE", "timestamp": 1}}
PAIR = {"delta_inCommitTimestampEnablementVersion": None, "delta_inCommitTimestampEnablementTimestamp": None}
NAME = f"{1:020d}"


def _metadata_at(path: Any, **fields: Any) -> dict[str, Any]:
    from tests.support.doctor.damaged_tables import read

    body = next(line["metaData"] for line in read(commit(path, 0)) if "metaData" in line)
    return {"metaData": {**body, **fields}}


def without_first(values: list[Any]) -> list[Any]:
    first = next(number for number, value in enumerate(values) if value)
    return [None if number == first else value for number, value in enumerate(values)]


def staged(path: Path) -> None:
    log(path, "_staged_commits").mkdir(exist_ok=True)
    name = f"{9:020d}.12345678-1234-1234-1234-123456789abc.json"
    log(path, f"_staged_commits/{name}").write_bytes(b"{}")


def _protocol(**fields: Any) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **fields}}


TIMES = [
    case("no commitInfo", timed, edit(2, without("commitInfo")), "commit-info-missing"),
    case("commitInfo last", timed, edit(2, lambda lines: lines[1:] + lines[:1]), "commit-info-not-first"),
    case(
        "no timestamp", timed, edit_action(2, "commitInfo", lambda info: info.pop("inCommitTimestamp")), "ict-missing"
    ),
    case(
        "no timestamp in the latest",
        timed,
        edit_action(4, "commitInfo", lambda i: i.pop("inCommitTimestamp")),
        "ict-missing",
    ),
    case("timestamp as text", timed, set_ict(2, "1700000000000"), "ict-invalid"),
    case("negative timestamp", timed, set_ict(2, -5), "ict-invalid"),
    case("timestamp as a fraction", timed, set_ict(2, 1.5), "ict-invalid"),
    case("equal timestamps", timed, lambda path: set_ict(3, ict_of(path, 2))(path), "ict-not-increasing"),
    case("timestamps that go back", timed, copied_earlier(3), "ict-not-increasing"),
    case("year 2100", timed, poisoned, "ict-in-future", "ict-drift"),
    case("largest timestamp", timed, set_ict(4, LARGEST), "ict-at-largest"),
    case(
        "half a pair: version",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementTimestamp=None),
        "ict-half-enablement-pair",
    ),
    case(
        "half a pair: time",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementVersion=None),
        "ict-half-enablement-pair",
    ),
    case("no pair", timed_late, configure(4, **PAIR), "ict-enablement-missing"),
    case(
        "pair that is no number",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementVersion="four"),
        "ict-enablement-invalid",
    ),
    case(
        "pair of another version",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementVersion="3"),
        "ict-enablement-version-wrong",
    ),
    case(
        "pair of another time",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementTimestamp="7"),
        "ict-enablement-timestamp-wrong",
    ),
    case("pair after the latest version", timed, clone_pair, "ict-enablement-after-latest"),
    case(
        "pair in a table that has them from the start",
        timed,
        configure(0, delta_inCommitTimestampEnablementVersion="2", delta_inCommitTimestampEnablementTimestamp="5"),
        "ict-enablement-version-wrong",
    ),
    case(
        "stale pair",
        timed_off,
        configure(7, delta_inCommitTimestampEnablementVersion="4", delta_inCommitTimestampEnablementTimestamp="5"),
        "ict-stale-enablement-pair",
    ),
    case(
        "property without feature",
        timed,
        edit_action(0, "protocol", lambda p: p.update(writerFeatures=[])),
        "ict-property-without-feature",
    ),
    case(
        "plural name of the feature",
        timed,
        edit_action(0, "protocol", lambda p: p.update(writerFeatures=["inCommitTimestamps"])),
        "ict-feature-name",
    ),
    case(
        "turned off by a restore",
        timed,
        lambda path: append_commit({"commitInfo": {"operation": "RESTORE"}}, _metadata_at(path, configuration={}))(
            path
        ),
        "ict-disabled-by-operation",
    ),
    case("empty commit with timestamps on", timed, overwrite(f"{2:020d}.json", b""), "commit-empty"),
    case(
        "commit of a table with timestamps gone",
        timed,
        delete(f"_delta_log/{2:020d}.json"),
        "version-gap",
        "ict-commit-gone",
    ),
    case("timestamp while off", plain, set_ict(2, 1_700_000_000_000), "ict-not-enabled"),
    case(
        "checksum of another time", timed, edit_crc(2, lambda c: c.update(inCommitTimestampOpt=5)), "crc-ict-disagrees"
    ),
    case("checksum without a time", timed, edit_crc(2, lambda c: c.pop("inCommitTimestampOpt")), "crc-ict-missing"),
    case(
        "checksum with a time while off",
        plain,
        edit_crc(2, lambda c: c.update(inCommitTimestampOpt=5)),
        "crc-ict-unexpected",
    ),
]

COMMITS = [
    case("unknown field", plain, edit_action(1, "add", lambda add: add.update(future=1)), "field-unknown"),
    case(
        "file times that go back",
        plain,
        lambda path: os.utime(commit(path, 2), (1, 1)),
        "file-time-not-increasing",
    ),
    case("gap", plain, delete(f"_delta_log/{NAME}.json"), "version-gap"),
    case("first commit missing", plain, delete(f"_delta_log/{0:020d}.json"), "log-start-missing"),
    case("no log", plain, delete("_delta_log/*"), "log-missing"),
    case("torn commit", plain, truncate(f"_delta_log/{3:020d}.json", 0.8), "commit-truncated"),
    case("no JSON", plain, overwrite(f"{NAME}.json", b'{"add":\n{"commitInfo":{}}\n'), "commit-invalid-json"),
    case("no text", plain, overwrite(f"{NAME}.json", b'{"commitInfo":{"a":"\xff\xfe"}}\n'), "commit-not-text"),
    case("white space", plain, overwrite(f"{NAME}.json", b" \n\n"), "commit-empty"),
    case("a list", plain, overwrite(f"{NAME}.json", b'["add"]\n'), "commit-line-not-an-action"),
    case(
        "byte order mark",
        plain,
        lambda path: (commit(path, 1).write_bytes(b"\xef\xbb\xbf" + commit(path, 1).read_bytes()), None)[1],
        "commit-byte-order-mark",
    ),
    case(
        "two actions on a line",
        plain,
        edit(1, lambda lines: [{k: v for line in lines for k, v in line.items()}]),
        "commit-line-not-an-action",
    ),
    case(
        "spread over lines",
        plain,
        lambda path: (commit(path, 1).write_text(json.dumps(INFO, indent=2)), None)[1],
        "commit-json-multiline",
    ),
    case("key twice", plain, overwrite(f"{NAME}.json", b'{"commitInfo":{"a":1,"a":2}}\n'), "commit-duplicate-key"),
    case("unknown action", plain, append_commit(INFO, {"future": {}}), "action-unknown"),
    case("add without path", plain, edit_action(1, "add", lambda add: add.pop("path")), "action-invalid"),
    case("size as text", plain, edit_action(1, "add", lambda add: add.update(size="9")), "action-invalid"),
    case("two protocols", plain, append_commit(INFO, _protocol(), _protocol()), "commit-protocol-twice"),
    case(
        "two metaData",
        plain,
        lambda path: append_commit(INFO, _metadata_at(path), _metadata_at(path))(path),
        "commit-metadata-twice",
    ),
    case(
        "two transactions",
        plain,
        append_commit(INFO, {"txn": {"appId": "a", "version": 1}}, {"txn": {"appId": "a", "version": 2}}),
        "commit-txn-twice",
    ),
    case(
        "two domains",
        plain,
        append_commit(INFO, *({"domainMetadata": {"domain": "d", "configuration": c, "removed": False}} for c in "xy")),
        "commit-domain-twice",
        "domain-without-feature",
    ),
    case("two commitInfo", plain, append_commit(INFO, INFO), "commit-info-twice"),
    case(
        "sidecar in a commit",
        plain,
        append_commit(INFO, {"sidecar": {"path": "a.parquet", "sizeInBytes": 1, "modificationTime": 1}}),
        "checkpoint-action-in-commit",
    ),
    case("no protocol", plain, edit(0, without("protocol")), "protocol-missing"),
    case("no metaData", plain, edit(0, without("metaData")), "metadata-missing"),
    case("short name", plain, copy(f"{NAME}.json", "99.json"), "commit-name-malformed"),
    case("stray file", plain, overwrite("notes.txt", b"x"), "log-file-unknown"),
    case(
        "application goes back",
        plain,
        both(
            append_commit(INFO, {"txn": {"appId": "a", "version": 5}}),
            append_commit(INFO, {"txn": {"appId": "a", "version": 3}}),
        ),
        "txn-version-decreases",
    ),
    case(
        "blind append that removes",
        plain,
        lambda path: append_commit(
            {"commitInfo": {"isBlindAppend": True}},
            {"remove": {"path": first_add(path)["add"]["path"], "dataChange": True, "deletionTimestamp": 1}},
        )(path),
        "commit-info-contradicts",
    ),
    case(
        "protocol lowered",
        timed,
        append_commit({"commitInfo": {"operation": "WRITE"}}, _protocol()),
        "protocol-lowered",
    ),
]

SEGMENTS = [
    case("damaged checkpoint", checkpointed, truncate("_delta_log/*.checkpoint.parquet"), "checkpoint-unreadable"),
    case("empty checkpoint", checkpointed, overwrite(f"{4:020d}.checkpoint.parquet", b""), "checkpoint-unreadable"),
    case("checkpoint lacks a file", checkpointed, edit_checkpoint("add", without_first), "checkpoint-file-missing"),
    case(
        "checkpoint with another size",
        checkpointed,
        edit_checkpoint("add", lambda v: [None if x is None else {**x, "size": x["size"] + 1} for x in v]),
        "checkpoint-file-differs",
    ),
    case(
        "checkpoint with another path",
        checkpointed,
        edit_checkpoint("add", lambda v: [None if x is None else {**x, "path": f"x{x['path']}"} for x in v]),
        "checkpoint-file-extra",
        "checkpoint-file-missing",
    ),
    case(
        "checkpoint without protocol",
        checkpointed,
        edit_checkpoint("protocol", lambda v: [None] * len(v)),
        "checkpoint-protocol-missing",
    ),
    case(
        "checkpoint without metaData",
        checkpointed,
        edit_checkpoint("metaData", lambda v: [None] * len(v)),
        "checkpoint-metadata-missing",
    ),
    case(
        "checkpoint of another table",
        checkpointed,
        edit_checkpoint("metaData", lambda v: [None if x is None else {**x, "id": "other"} for x in v]),
        "checkpoint-metadata-differs",
    ),
    case(
        "checkpoint of another protocol",
        checkpointed,
        edit_checkpoint(
            "protocol", lambda v: [None if x is None else {**x, "writerFeatures": ["appendOnly"]} for x in v]
        ),
        "checkpoint-protocol-differs",
    ),
    case(
        "checkpoint after the latest",
        checkpointed,
        delete(f"_delta_log/{4:020d}.json", f"_delta_log/{5:020d}.json", f"_delta_log/{6:020d}.json"),
        "checkpoint-after-latest",
    ),
    case(
        "checkpoint without its commit", checkpointed, delete(f"_delta_log/{4:020d}.json"), "checkpoint-without-commit"
    ),
    case(
        "gap below a checkpoint",
        checkpointed,
        delete(f"_delta_log/{2:020d}.json"),
        "version-gap-below-checkpoint",
        "ict-commit-gone",
    ),
    case("gap after a checkpoint", checkpointed, delete(f"_delta_log/{5:020d}.json"), "version-gap"),
    case(
        "part of a checkpoint",
        checkpointed,
        copy("*.checkpoint.parquet", f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet"),
        "multi-part-checkpoint-incomplete",
    ),
    case(
        "checkpoint by UUID without feature",
        checkpointed,
        copy("*.checkpoint.parquet", f"{4:020d}.checkpoint.12345678-1234-1234-1234-123456789abc.parquet"),
        "uuid-checkpoint-without-feature",
    ),
    case(
        "sidecar missing",
        checkpointed_v2,
        lambda path: sorted(log(path, "_sidecars").iterdir())[0].unlink(),
        "sidecar-missing",
    ),
    case(
        "sidecar damaged",
        checkpointed_v2,
        truncate("_delta_log/_sidecars/*.parquet"),
        "sidecar-size-differs",
        "sidecar-unreadable",
    ),
    case(
        "sidecar elsewhere",
        checkpointed_v2,
        edit_top(
            lambda ls: [{"sidecar": {**x["sidecar"], "path": "../../x.parquet"}} if "sidecar" in x else x for x in ls]
        ),
        "sidecar-path-invalid",
    ),
    case(
        "sidecar of another size",
        checkpointed_v2,
        edit_top(lambda ls: [{"sidecar": {**x["sidecar"], "sizeInBytes": 3}} if "sidecar" in x else x for x in ls]),
        "sidecar-size-differs",
    ),
    case(
        "stray sidecar",
        checkpointed_v2,
        lambda path: (log(path, "_sidecars/x.parquet").write_bytes(b"x"), None)[1],
        "sidecar-unreferenced",
    ),
    case(
        "no checkpointMetadata",
        checkpointed_v2,
        edit_top(without("checkpointMetadata")),
        "checkpoint-metadata-action-missing",
    ),
    case(
        "checkpointMetadata of another version",
        checkpointed_v2,
        edit_top(lambda ls: [{"checkpointMetadata": {"version": 99}} if "checkpointMetadata" in x else x for x in ls]),
        "checkpoint-metadata-version-differs",
    ),
    case(
        "files in sidecars and beside them",
        checkpointed_v2,
        lambda path: edit_top(lambda ls: [*ls, first_add(path)])(path),
        "checkpoint-files-split",
        "checkpoint-file-twice",
    ),
    case(
        "commitInfo in a checkpoint", checkpointed_v2, edit_top(lambda ls: [*ls, INFO]), "checkpoint-holds-provenance"
    ),
    case("hint that is no JSON", checkpointed, overwrite("_last_checkpoint", b"{"), "last-checkpoint-unreadable"),
    case("hint to no checkpoint", checkpointed, edit_hint(lambda h: h.update(version=2)), "last-checkpoint-to-missing"),
    case(
        "hint with another checksum",
        checkpointed,
        edit_hint(lambda h: h.update(size=77), seal=False),
        "last-checkpoint-checksum-wrong",
    ),
    case("hint of another size", checkpointed, edit_hint(lambda h: h.update(size=77)), "last-checkpoint-size-differs"),
    case("no hint", checkpointed, delete("_delta_log/_last_checkpoint"), "last-checkpoint-missing"),
    case("hint of parts", checkpointed, edit_hint(lambda h: h.update(parts=3)), "last-checkpoint-to-missing"),
    case(
        "compaction lacks a file",
        compacted,
        compaction_edit(
            lambda ls: [x for i, x in enumerate(ls) if i != next(n for n, y in enumerate(ls) if "add" in y)]
        ),
        "compaction-contradicts-commits",
    ),
    case(
        "compaction lacks a remove",
        compacted,
        compaction_edit(lambda ls: [*without("remove")(ls), add_line("more.parquet")]),
        "compaction-contradicts-commits",
    ),
    case("compaction damaged", compacted, truncate("_delta_log/*.compacted.json"), "compaction-unreadable"),
    case(
        "compaction with commitInfo", compacted, compaction_edit(lambda ls: [INFO, *ls]), "compaction-holds-provenance"
    ),
    case(
        "compaction with a file twice",
        compacted,
        compaction_edit(lambda ls: [*ls, next(x for x in ls if "add" in x)]),
        "compaction-action-twice",
    ),
    case(
        "compaction backwards",
        compacted,
        rename("*.compacted.json", f"{5:020d}.{1:020d}.compacted.json"),
        "compaction-range-invalid",
    ),
    case(
        "compaction beyond the log",
        compacted,
        rename("*.compacted.json", f"{1:020d}.{9:020d}.compacted.json"),
        "compaction-after-latest",
    ),
    case(
        "compaction without commits",
        compacted,
        delete(f"_delta_log/{2:020d}.json"),
        "compaction-not-checked",
        "version-gap",
    ),
    case("checksum that is no JSON", plain, overwrite(f"{NAME}.crc", b"{{"), "crc-unreadable"),
    case("checksum without protocol", plain, edit_crc(1, lambda c: c.pop("protocol")), "crc-field-missing"),
    case("checksum of two protocols", plain, edit_crc(1, lambda c: c.update(numProtocol=2)), "crc-numbers-wrong"),
    case("checksum of more files", plain, edit_crc(1, lambda c: c.update(numFiles=9)), "crc-files-differ"),
    case("checksum of more bytes", plain, edit_crc(1, lambda c: c.update(tableSizeBytes=9)), "crc-size-differs"),
    case(
        "checksum of another protocol",
        plain,
        edit_crc(1, lambda c: c["protocol"].update(minWriterVersion=4)),
        "crc-protocol-differs",
    ),
    case(
        "checksum of other metadata",
        plain,
        edit_crc(1, lambda c: c["metadata"].update(id="other")),
        "crc-metadata-differs",
    ),
    case(
        "checksum of another transaction", plain, edit_crc(1, lambda c: c.update(txnId="other")), "crc-txn-id-disagrees"
    ),
    case(
        "checksum of more applications",
        plain,
        edit_crc(1, lambda c: c.update(setTransactions=[{"appId": "a", "version": 1}])),
        "crc-transactions-differ",
    ),
    case(
        "checksum of more domains",
        plain,
        edit_crc(1, lambda c: c.update(domainMetadata=[{"domain": "a", "configuration": "", "removed": False}])),
        "crc-domains-differ",
    ),
    case(
        "checksum of other bins",
        plain,
        edit_crc(1, lambda c: c["fileSizeHistogram"]["fileCounts"].__setitem__(0, 9)),
        "crc-histogram-differs",
    ),
    case(
        "checksum of other deletions",
        with_vectors,
        edit_crc(4, lambda c: c.update(numDeletedRecordsOpt=9)),
        "crc-deletions-differ",
    ),
    case("checksum without a commit", plain, copy(f"{NAME}.crc", f"{8:020d}.crc"), "crc-without-commit"),
    case("staged commit", plain, staged, "staged-commit-unpublished"),
]

FILES = [
    case("data file missing", plain, lambda path: data_file(path).unlink(), "data-file-missing"),
    case(
        "data file cut",
        plain,
        lambda path: (data_file(path).write_bytes(data_file(path).read_bytes()[:-20]), None)[1],
        "data-file-size-differs",
        "data-file-unreadable",
    ),
    case(
        "data file of other bytes",
        plain,
        lambda path: (data_file(path).write_bytes(b"\0" * data_file(path).stat().st_size), None)[1],
        "data-file-unreadable",
    ),
    case(
        "file added twice",
        plain,
        edit(1, lambda lines: [*lines, next(x for x in lines if "add" in x)]),
        "file-added-twice",
    ),
    case(
        "file removed twice",
        plain,
        lambda path: append_commit(INFO, *({"remove": {"path": "x", "dataChange": True, "deletionTimestamp": 1}},) * 2)(
            path
        ),
        "file-removed-twice",
        "remove-not-live",
    ),
    case(
        "added and removed",
        plain,
        lambda path: append_commit(
            INFO, first_add(path), {"remove": {"path": first_add(path)["add"]["path"], "dataChange": True}}
        )(path),
        "commit-add-and-remove",
        "remove-time-missing",
    ),
    case("two spellings", plain, spelled_otherwise, "file-live-twice"),
    case("two vectors", with_vectors, with_second_vector, "file-live-with-two-vectors"),
    case(
        "remove without its metadata",
        plain,
        lambda path: append_commit(
            INFO,
            {
                "remove": {
                    "path": first_add(path)["add"]["path"],
                    "dataChange": True,
                    "deletionTimestamp": 1,
                    "extendedFileMetadata": True,
                }
            },
        )(path),
        "remove-metadata-incomplete",
    ),
    case(
        "new file without data change",
        plain,
        lambda path: append_commit(INFO, again(first_add(path), path="new.parquet", dataChange=False))(path),
        "data-change-contradicts",
    ),
    case("path that leads out", plain, append_commit(INFO, add_line("../x.parquet")), "path-invalid"),
    case("absolute path", plain, append_commit(INFO, add_line("s3://bucket/x.parquet")), "path-outside-table"),
    case("path with a space", plain, append_commit(INFO, add_line("a b.parquet")), "path-not-encoded"),
    case("path that cannot be decoded", plain, append_commit(INFO, add_line("%ff%fe.parquet")), "path-invalid"),
    case("hidden directory", plain, append_commit(INFO, add_line("_tmp/a.parquet")), "data-file-hidden"),
    case(
        "no partition value",
        partitioned,
        edit_action(1, "add", lambda add: add.update(partitionValues={})),
        "partition-values-missing",
    ),
    case(
        "more partition values",
        partitioned,
        edit_action(1, "add", lambda add: add["partitionValues"].update(x="1")),
        "partition-values-extra",
    ),
    case(
        "partition value of another type",
        partitioned_by_number,
        edit_action(0, "add", lambda add: add.update(partitionValues={"id": "x"})),
        "partition-value-invalid",
    ),
    case(
        "directory of another value",
        partitioned,
        edit_action(1, "add", lambda add: add.update(partitionValues={"day": "b"})),
        "partition-directory-differs",
    ),
    case(
        "statistics that are no JSON", plain, edit_action(1, "add", lambda add: add.update(stats="{")), "stats-invalid"
    ),
    case(
        "minimum of another type", plain, edit_stats(1, lambda s: s["minValues"].update(id="x")), "stats-value-invalid"
    ),
    case(
        "minimum above maximum", plain, edit_stats(1, lambda s: s["minValues"].update(id=1000)), "stats-min-above-max"
    ),
    case("more NULLs than rows", plain, edit_stats(1, lambda s: s["nullCount"].update(id=99)), "stats-count-invalid"),
    case(
        "statistics of no column",
        plain,
        edit_stats(1, lambda s: s["nullCount"].update(nowhere=0)),
        "stats-column-unknown",
    ),
    case("other number of rows", plain, edit_stats(1, lambda s: s.update(numRecords=77)), "stats-contradict-footer"),
    case("maximum too low", plain, edit_stats(1, lambda s: s["maxValues"].update(id=10)), "stats-contradict-footer"),
    case(
        "maximum of text too low",
        plain,
        edit_stats(1, lambda s: s["maxValues"].update(name="n10")),
        "stats-contradict-footer",
    ),
    case(
        "NULLs where there are none",
        plain,
        edit_stats(1, lambda s: s["nullCount"].update(id=1)),
        "stats-contradict-footer",
    ),
    case("negative number of rows", plain, edit_stats(1, lambda s: s.update(numRecords=-1)), "stats-count-invalid"),
    case(
        "column of another type",
        plain,
        rewrite_rows(lambda t: t.set_column(0, "id", pa.array([str(x) for x in t.column("id").to_pylist()]))),
        "data-column-type-differs",
    ),
    case(
        "rows that break a constraint",
        constrained,
        rewrite_rows(lambda t: t.set_column(0, "id", pa.array([-1] * t.num_rows, pa.int64()))),
        "constraint-violated",
        "stats-contradict-data",
        deep=True,
    ),
    case(
        "vector without feature",
        with_vectors,
        edit_action(0, "protocol", lambda p: p.update(readerFeatures=[], writerFeatures=[])),
        "vector-without-feature",
        "property-needs-feature",
    ),
    case(
        "vector without a number of rows",
        with_vectors,
        edit_stats(4, lambda s: s.pop("numRecords")),
        "vector-without-num-records",
    ),
    case(
        "vector of more rows",
        with_vectors,
        vector_field(cardinality=99),
        "vector-outside-file",
        "vector-cardinality-differs",
    ),
    case("vector of another cardinality", with_vectors, vector_field(cardinality=2), "vector-cardinality-differs"),
    case("damaged inline vector", with_vectors, vector_field(pathOrInlineDv="abc"), "vector-unreadable"),
    case("inline vector with an offset", with_vectors, vector_field(offset=3), "vector-descriptor-invalid"),
    case("vector of no kind", with_vectors, vector_field(storageType="z"), "action-invalid"),
    case("vector file missing", with_vector_file, delete("deletion_vector*.bin"), "vector-file-missing"),
    case("vector file damaged", with_vector_file, truncate("deletion_vector*.bin"), "vector-unreadable"),
    case(
        "cdc with data change",
        plain,
        append_commit(
            INFO, {"cdc": {"path": "_change_data/x.parquet", "partitionValues": {}, "size": 1, "dataChange": True}}
        ),
        "cdc-data-change",
        "cdc-without-feed",
        "cdc-file-missing",
    ),
]

METADATA = [
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
        lambda path: append_commit(INFO, _metadata_at(path, partitionColumns=[]))(path),
        "partition-columns-changed",
    ),
    case(
        "other id", plain, lambda path: append_commit(INFO, _metadata_at(path, id="other"))(path), "metadata-id-changed"
    ),
    case(
        "type changes",
        plain,
        lambda path: append_commit(
            INFO,
            _metadata_at(path, schemaString=_metadata_at(path)["metaData"]["schemaString"].replace("long", "string")),
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
    case(
        "unknown reader version",
        plain,
        append_commit(INFO, _protocol(minReaderVersion=9, minWriterVersion=9)),
        "protocol-version-unknown",
    ),
    case(
        "unknown features",
        plain,
        append_commit(
            INFO, _protocol(minReaderVersion=3, minWriterVersion=7, readerFeatures=["x"], writerFeatures=["x"])
        ),
        "feature-unknown",
    ),
    case(
        "no list of features",
        plain,
        append_commit(INFO, _protocol(minReaderVersion=3, minWriterVersion=7)),
        "feature-list-missing",
    ),
    case(
        "list of features at an old version",
        plain,
        append_commit(INFO, _protocol(writerFeatures=["appendOnly"])),
        "feature-list-unexpected",
    ),
    case(
        "reader version without writer version",
        plain,
        append_commit(INFO, _protocol(minReaderVersion=3, readerFeatures=[])),
        "protocol-reader-without-writer",
    ),
    case(
        "feature for readers only",
        plain,
        append_commit(
            INFO,
            _protocol(minReaderVersion=3, minWriterVersion=7, readerFeatures=["deletionVectors"], writerFeatures=[]),
        ),
        "feature-only-in-reader",
    ),
    case(
        "feature for writers only",
        plain,
        append_commit(
            INFO,
            _protocol(minReaderVersion=3, minWriterVersion=7, readerFeatures=[], writerFeatures=["deletionVectors"]),
        ),
        "feature-only-in-writer",
    ),
    case(
        "writer feature for readers",
        plain,
        append_commit(
            INFO,
            _protocol(
                minReaderVersion=3, minWriterVersion=7, readerFeatures=["appendOnly"], writerFeatures=["appendOnly"]
            ),
        ),
        "feature-not-for-readers",
    ),
    case(
        "feature without the one it requires",
        plain,
        append_commit(INFO, _protocol(minWriterVersion=7, writerFeatures=["rowTracking"])),
        "feature-requires-other",
    ),
    case(
        "feature twice",
        plain,
        append_commit(INFO, _protocol(minWriterVersion=7, writerFeatures=["appendOnly", "appendOnly"])),
        "feature-listed-twice",
    ),
    case(
        "append-only table that lost a file",
        plain,
        both(
            configure(0, delta_appendOnly="true"),
            lambda path: append_commit(
                INFO, {"remove": {"path": first_add(path)["add"]["path"], "dataChange": True, "deletionTimestamp": 1}}
            )(path),
        ),
        "append-only-violated",
    ),
    case("no row id", tracked, edit_action(1, "add", lambda add: add.pop("baseRowId")), "row-id-missing"),
    case("row ids twice", tracked, edit_action(2, "add", lambda add: add.update(baseRowId=0)), "row-id-overlap"),
    case(
        "high-water mark too low",
        tracked,
        edit_action(3, "domainMetadata", lambda d: d.update(configuration='{"rowIdHighWaterMark":1}')),
        "row-id-high-water-mark",
        "row-id-high-water-mark-decreased",
    ),
    case(
        "row commit version of the future",
        tracked,
        edit_action(1, "add", lambda add: add.update(defaultRowCommitVersion=9)),
        "row-commit-version-wrong",
    ),
    case(
        "no row tracking columns",
        tracked,
        configure(0, delta_rowTracking_materializedRowIdColumnName=None),
        "row-tracking-columns",
    ),
    case(
        "constraint that cannot be parsed",
        constrained,
        configure(4, delta_constraints_positive="id >"),
        "constraint-invalid",
    ),
    case(
        "catalog without timestamps",
        plain,
        append_commit(
            INFO,
            _protocol(
                minReaderVersion=3,
                minWriterVersion=7,
                readerFeatures=["catalogManaged", "vacuumProtocolCheck"],
                writerFeatures=["catalogManaged", "inCommitTimestamp", "vacuumProtocolCheck"],
            ),
        ),
        "catalog-without-ict",
        "catalog-txn-id-missing",
        "catalog-not-consulted",
    ),
]

DAMAGES: list[Damage] = [*TIMES, *COMMITS, *SEGMENTS, *FILES, *METADATA]
