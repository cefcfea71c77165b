"""Functions that damage data files or the actions that refer to them."""

from __future__ import annotations

from tests.support.doctor.damaged_tables import (
    Damage,
    add_line,
    again,
    append_commit,
    case,
    data_file,
    edit,
    edit_action,
    first_add,
    partitioned,
    partitioned_by_number,
    plain,
    removed_files,
    spelled_otherwise,
    timed,
    with_second_vector,
    with_vectors,
)
from tests.support.doctor.damages.lines import INFO

FILES: list[Damage] = [
    case(
        "removed file missing",
        timed,
        lambda path: removed_files(path, 4)[0].unlink(),
        "version-lost",
    ),
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
