"""The table of rules about metadata, features, data files and deletion vectors. Pure."""

from __future__ import annotations

from deltalog.doctor.log_rules import Row

_METADATA = "Correct the metadata in a new commit, or restore a version from before the change."
_FEATURE = "Add the feature to the protocol in a new commit, or remove what requires it."
_REWRITE = "Add the file again with correct values in a new commit, or restore it from a copy."
_STATS = "Queries may miss rows of the file. Rewrite it, or add it again with correct statistics."
_RESTORE = "Restore the file from a copy, or remove it from the table in a new commit, which loses its rows."
_RESTORE_MISSING = (
    "Restore the file from a copy, or commit its removal, which loses its rows: "
    "DeltaTable.remove_missing_files(dry_run=False)."
)
_MARK = "Set the high-water mark to the last value in a new commit (ALTER TABLE … ALTER COLUMN … SYNC IDENTITY)."
_IDS = "Rewrite the file with a client that assigns row ids."

ROWS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("change-metadata", (
        ("metadata-missing", "error", "No commit so far has a metaData action",
         "Restore the missing commits from a copy."),
        ("metadata-id-changed", "warning", "The table id changes",
         "Streaming readers treat the table as another one; restart them."),
        ("metadata-schema-missing", "warning", "The metaData action has no schema", _METADATA),
        ("metadata-schema-invalid", "error", "The schema cannot be parsed", _METADATA),
        ("partition-column-unknown", "error", "A partition column is not in the schema", _METADATA),
        ("partition-column-twice", "error", "A partition column is listed twice", _METADATA),
        ("partition-column-type", "error", "A partition column is an array, a map, a struct or a variant", _METADATA),
        ("partition-columns-changed", "error", "The partition columns change while files with the old ones are live",
         _METADATA),
    )),
    ("format-specification", (
        ("metadata-format", "error", "The format provider is not parquet", _METADATA),
    )),
    ("schema-serialization-format", (
        ("schema-column-twice", "error", "Two column names are equal or differ only in case", _METADATA),
        ("schema-column-name", "warning",
         "A column name has characters that require column mapping",
         "Enable column mapping by name."),
        ("schema-type-unknown", "error", "The protocol does not define the type of a column", _METADATA),
        ("schema-key-invalid", "error", "A key in a column's metadata has an invalid value", _METADATA),
    )),
    ("table-properties", (
        ("property-invalid", "error", "A table property has an invalid value",
         "Set the property to a valid value."),
        ("property-unknown", "info", "A property with the prefix delta. is unknown", "Check its spelling."),
    )),
    ("table-features", (
        ("feature-list-missing", "error", "Reader version 3 or writer version 7 without the feature list",
         _FEATURE),
        ("feature-list-unexpected", "error", "A feature list at a protocol version that does not allow it", _FEATURE),
        ("feature-unknown", "warning", "deltalog does not know a feature, so parts of the table were not checked",
         "Use a newer deltalog."),
        ("feature-listed-twice", "warning", "A feature is listed twice", _FEATURE),
        ("feature-requires-other", "error", "A feature is listed without a feature that it requires", _FEATURE),
        ("property-needs-feature", "error", "A table property is enabled but the protocol lacks its feature", _FEATURE),
        ("schema-needs-feature", "error", "The schema requires a feature that the protocol lacks", _FEATURE),
    )),
    ("table-features-for-new-and-existing-tables", (
        ("protocol-reader-without-writer", "error", "Reader version 3 with a writer version below 7", _FEATURE),
    )),
    ("supported-features", (
        ("feature-only-in-reader", "error", "A feature is in readerFeatures but not in writerFeatures", _FEATURE),
        ("feature-only-in-writer", "error", "A reader-writer feature is missing from readerFeatures", _FEATURE),
        ("feature-not-for-readers", "warning",
         "A writer-only feature is in readerFeatures: readers refuse the table needlessly",
         _FEATURE),
    )),
    ("writer-requirements-for-column-mapping", (
        ("column-mapping-id-missing", "error", "A column id is missing or invalid although column mapping is on",
         _METADATA),
        ("column-mapping-name-missing", "error", "A column has no physical name although column mapping is on",
         _METADATA),
        ("column-mapping-id-twice", "error", "Two columns have the same id", _METADATA),
        ("column-mapping-name-twice", "error", "Two columns have the same physical name", _METADATA),
        ("column-mapping-max-id-low", "error", "delta.columnMapping.maxColumnId is missing or less than a column id",
         _METADATA),
        ("column-mapping-max-id-decreased", "error", "delta.columnMapping.maxColumnId decreases", _METADATA),
        ("column-mapping-column-changed", "error",
         "The id or physical name of a column changes while its files are live",
         _METADATA),
        ("column-mapping-mode-changed", "warning", "The column mapping mode changes between name and id",
         _METADATA),
    )),
    ("consistency-between-table-metadata-and-data-files", (
        ("partition-values-missing", "error", "An add action lacks the value of a partition column", _REWRITE),
        ("partition-values-extra", "warning", "An add action has values for columns that are not partition columns",
         _REWRITE),
        ("column-type-changed", "error", "A column changes to a type that is not wider while its files are live",
         _METADATA),
        ("data-column-type-differs", "error", "The type of a column in a data file does not match the schema",
         _REWRITE),
        ("data-file-missing", "error", "A live data file does not exist", _RESTORE_MISSING),
        ("data-file-size-differs", "error", "The size of a data file differs from that in its add action", _RESTORE),
        ("data-file-unreadable", "error", "A data file is damaged", _RESTORE),
        ("data-file-not-checked", "info", "Data files were not checked: too many, or outside the table",
         "Run the check with deep=True."),
    )),
    ("variant-shredding", (
        ("variant-shredded-without-feature", "error",
         "A data file has shredded variants but the protocol lacks variantShredding", _FEATURE),
    )),
    ("variant-data-in-parquet", (
        ("variant-value-malformed", "error", "A variant in a data file is not a variant of the Parquet format",
         _REWRITE),
    )),
    ("partition-value-serialization", (
        ("partition-value-invalid", "error", "A partition value does not match the column type", _REWRITE),
        ("partition-value-null", "error", "A partition value is NULL but the column is not nullable", _REWRITE),
    )),
    ("data-files", (
        ("data-file-hidden", "warning", "A data file is in a directory whose name starts with _",
         "Move it in a new commit."),
        ("partition-directory-differs", "info",
         "The directory name and the add action disagree on a partition value",
         "Nothing: readers use the value in the add action."),
    )),
    ("per-file-statistics", (
        ("stats-invalid", "error",
         "The statistics of a file do not follow the protocol's JSON format",
         _STATS),
        ("stats-value-invalid", "error", "A statistic does not match the column type", _STATS),
        ("stats-min-above-max", "error", "A minimum is greater than the maximum", _STATS),
        ("stats-count-invalid", "error", "A count is negative or greater than the number of records", _STATS),
        ("stats-column-unknown", "warning", "Statistics name a column that is not in the schema", _STATS),
        ("stats-contradict-footer", "error", "Statistics contradict the footer of the data file", _STATS),
        ("stats-rounded", "warning", "A timestamp bound is off by less than a second because of rounding", _STATS),
        ("stats-contradict-data", "error", "Statistics contradict the rows of the data file", _STATS),
        ("stats-null-in-required-column", "error", "Statistics count NULLs in a non-nullable column", _REWRITE),
    )),
    ("deletion-vectors", (
        ("vector-without-feature", "error", "A file has a deletion vector but the protocol lacks deletionVectors",
         _FEATURE),
        ("vector-while-off", "warning", "A commit writes a deletion vector although delta.enableDeletionVectors is off",
         _METADATA),
    )),
    ("deletion-vector-descriptor-schema", (
        ("vector-descriptor-invalid", "error", "The descriptor of a deletion vector is invalid", _REWRITE),
        ("vector-empty", "warning", "A deletion vector deletes no row", _REWRITE),
        ("vector-cardinality-differs", "error",
         "The cardinality in a deletion vector's descriptor is wrong",
         _REWRITE),
    )),
    ("deletion-vector-file-storage-format", (
        ("vector-file-missing", "error", "The file of a deletion vector does not exist", _RESTORE),
        ("vector-unreadable", "error", "A deletion vector is damaged", _RESTORE),
    )),
    ("writer-requirement-for-deletion-vectors", (
        ("vector-without-num-records", "error", "A file with a deletion vector has no numRecords", _STATS),
        ("vector-outside-file", "error", "A deletion vector deletes rows beyond the end of its file", _REWRITE),
    )),
    ("writer-requirements-for-row-tracking", (
        ("row-id-missing", "error", "A file has no baseRowId or defaultRowCommitVersion although row tracking is on",
         _IDS),
        ("row-id-overlap", "error", "Two live files have the same row ids", _IDS),
        ("row-id-high-water-mark", "error", "The row id high-water mark is missing, invalid, or less than a row id",
         _IDS),
        ("row-id-high-water-mark-decreased", "error", "The row id high-water mark decreases", _IDS),
        ("row-commit-version-wrong", "error", "defaultRowCommitVersion of a new file is not the version of its commit",
         _IDS),
        ("row-id-changed", "error", "A re-added file has a different baseRowId or defaultRowCommitVersion",
         _IDS),
        ("remove-row-id-differs", "warning",
         "baseRowId or defaultRowCommitVersion of a remove action differs from that of its file", _IDS),
        ("row-tracking-columns", "error",
         "The names of the row tracking columns are missing or belong to other columns",
         _METADATA),
        ("row-tracking-suspended", "warning", "Row tracking is both enabled and suspended", _METADATA),
    )),
    ("append-only-tables", (
        ("append-only-violated", "error", "A commit removes rows from an append-only table",
         "Restore the previous version."),
    )),
    ("column-invariants", (
        ("invariant-invalid", "warning", "A column invariant cannot be parsed", _METADATA),
        ("data-null-in-required-column", "error", "A data file has NULLs in a non-nullable column", _REWRITE),
    )),
    ("check-constraints", (
        ("constraint-invalid", "warning", "deltalog cannot evaluate a CHECK constraint",
         "Check the expression."),
        ("constraint-violated", "error", "Rows of a data file violate a CHECK constraint",
         "Correct or delete the rows."),
    )),
    ("generated-columns", (
        ("generated-column-invalid", "warning", "deltalog cannot evaluate the expression of a generated column",
         "Check it."),
        ("value-depends-on-time-zone", "warning",
         "Rows contradict a generated column or a CHECK constraint over a timestamp, if times without a zone are UTC",
         "Nothing, if the writers of the rows use another time zone. Otherwise correct the rows."),
        ("generated-value-wrong", "error", "Values of a generated column differ from its expression",
         "Correct the rows."),
    )),
    ("identity-columns", (
        ("identity-invalid", "error", "The properties of an identity column are invalid", _METADATA),
        ("identity-changed", "warning", "The start, step or allowExplicitInsert of an identity column changes",
         _METADATA),
        ("identity-mark-invalid", "warning", "The high-water mark of an identity column is not in its sequence",
         _MARK),
        ("identity-mark-low", "error",
         "Files have values of an identity column beyond its high-water mark; new rows will get the same values",
         _MARK),
        ("identity-mark-decreased", "warning", "The high-water mark of an identity column moves backwards", _MARK),
        ("identity-value-wrong", "warning", "A value of an identity column is not in its sequence",
         "Correct the rows, unless they were written while allowExplicitInsert was true."),
    )),
    ("writer-requirements-for-clustered-table", (
        ("clustering-with-partitions", "error", "A table is both clustered and partitioned", _METADATA),
        ("clustering-column-unknown", "error", "The clustering columns are invalid or not in the schema", _METADATA),
        ("clustering-domain-missing", "warning", "A clustered table lacks the domain delta.clustering", _METADATA),
    )),
    ("writer-requirements-for-type-widening", (
        ("type-change-invalid", "error", "The protocol does not allow a recorded type change", _METADATA),
        ("type-change-unrecorded", "error", "The type of a column was widened but the schema does not record it",
         _METADATA),
    )),
    ("writer-requirements-for-icebergcompatv1", (
        ("iceberg-v1-violated", "error", "The table violates a requirement of icebergCompatV1", _METADATA),
    )),
    ("writer-requirements-for-icebergcompatv2", (
        ("iceberg-v2-violated", "error", "The table violates a requirement of icebergCompatV2", _METADATA),
        ("iceberg-file-violated", "warning", "A data file violates a requirement of Iceberg compatibility",
         "Rewrite the file (REORG TABLE … APPLY (UPGRADE UNIFORM))."),
    )),
    ("writer-requirements-for-catalog-managed-tables", (
        ("catalog-without-ict", "error", "A catalog-managed table does not have in-commit timestamps enabled",
         _METADATA),
    )),
    ("publishing-commits", (
        ("staged-commit-differs", "warning",
         "A published commit differs from all staged commits of its version",
         "Ask the catalog which one it ratified."),
        ("published-commit-differs", "error", "A published commit differs from the one that the catalog ratified",
         "Publish the ratified commit: readers without the catalog read the wrong commit."),
        ("staged-commit-missing", "error", "A ratified commit is neither staged nor published",
         "Restore the file from a copy of the table."),
        ("published-commit-missing", "error",
         "The log lacks its last commits, which the catalog has recorded as published",
         "Restore the commits from a copy of the table: it is read as an older version without them."),
        ("ratified-commit-differs", "error",
         "The file of a ratified commit differs from what the catalog recorded about it",
         "Find the program that wrote the file after it was ratified; restore the file from a copy of the table."),
    )),
    ("reading-catalog-managed-tables", (
        ("catalog-not-consulted", "info",
         "The table is catalog-managed; the catalog may have later versions than the log",
         "Check the table through its catalog."),
        ("catalog-behind-log", "error", "The log has commits that the catalog does not know",
         "Stop the program that writes by the path of the table, or restore the catalog from a later backup. For a "
         "catalog of deltalog, deltalog tables resync --dry-run compares the two."),
    )),
    ("catalog-managed-tables", (
        ("catalog-metadata-differs", "warning", "The catalog shows other metadata than the log has",
         "Ask the catalog's operator for a correction, or commit a change that sets the metadata again."),
    )),
)  # fmt: skip
