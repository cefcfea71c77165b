"""Functions that damage the protocol action, and violations of table features' requirements."""

from __future__ import annotations

from tests.support.doctor.damaged_tables import (
    Damage,
    append_commit,
    both,
    case,
    configure,
    constrained,
    edit_action,
    first_add,
    plain,
    tracked,
)
from tests.support.doctor.damages.lines import INFO, protocol

PROTOCOLS: list[Damage] = [
    case(
        "unknown reader version",
        plain,
        append_commit(INFO, protocol(minReaderVersion=9, minWriterVersion=9)),
        "protocol-version-unknown",
    ),
    case(
        "unknown features",
        plain,
        append_commit(
            INFO, protocol(minReaderVersion=3, minWriterVersion=7, readerFeatures=["x"], writerFeatures=["x"])
        ),
        "feature-unknown",
    ),
    case(
        "no list of features",
        plain,
        append_commit(INFO, protocol(minReaderVersion=3, minWriterVersion=7)),
        "feature-list-missing",
    ),
    case(
        "list of features at an old version",
        plain,
        append_commit(INFO, protocol(writerFeatures=["appendOnly"])),
        "feature-list-unexpected",
    ),
    case(
        "reader version without writer version",
        plain,
        append_commit(INFO, protocol(minReaderVersion=3, readerFeatures=[])),
        "protocol-reader-without-writer",
    ),
    case(
        "feature for readers only",
        plain,
        append_commit(
            INFO,
            protocol(minReaderVersion=3, minWriterVersion=7, readerFeatures=["deletionVectors"], writerFeatures=[]),
        ),
        "feature-only-in-reader",
    ),
    case(
        "feature for writers only",
        plain,
        append_commit(
            INFO,
            protocol(minReaderVersion=3, minWriterVersion=7, readerFeatures=[], writerFeatures=["deletionVectors"]),
        ),
        "feature-only-in-writer",
    ),
    case(
        "writer feature for readers",
        plain,
        append_commit(
            INFO,
            protocol(
                minReaderVersion=3, minWriterVersion=7, readerFeatures=["appendOnly"], writerFeatures=["appendOnly"]
            ),
        ),
        "feature-not-for-readers",
    ),
    case(
        "feature without the one it requires",
        plain,
        append_commit(INFO, protocol(minWriterVersion=7, writerFeatures=["rowTracking"])),
        "feature-requires-other",
    ),
    case(
        "feature twice",
        plain,
        append_commit(INFO, protocol(minWriterVersion=7, writerFeatures=["appendOnly", "appendOnly"])),
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
            protocol(
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
