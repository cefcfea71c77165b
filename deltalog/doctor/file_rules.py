"""The rules about metadata, features, data files and deletion vectors, as rows. Pure."""

from __future__ import annotations

from deltalog.doctor.log_rules import Row

_METADATA = "Correct the metadata in a new commit, or restore a version before the one that set it."
_FEATURE = "Add the feature to the protocol in a new commit, or unset what uses it."
_REWRITE = "Add the file again with correct values in a new commit, or restore it from a copy."
_STATS = "Queries may miss rows of the file. Rewrite it, or add it again with correct statistics."
_RESTORE = "Restore the file from a copy, or remove it from the table in a new commit (its rows are lost)."
_MARK = "Set the mark to the last value in a new commit (ALTER TABLE … ALTER COLUMN … SYNC IDENTITY)."
_IDS = "Rewrite the file with a client that assigns row ids."

ROWS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("change-metadata", (
        ("metadata-missing", "error", "No metaData action up to a version", "Restore the missing commits from a copy."),
        ("metadata-id-changed", "warning", "The id of the table changes",
         "Readers of changes treat it as another table; restart them."),
        ("metadata-schema-missing", "warning", "The metaData action has no schema", _METADATA),
        ("metadata-schema-invalid", "error", "The schema cannot be parsed", _METADATA),
        ("partition-column-unknown", "error", "A partition column is not in the schema", _METADATA),
        ("partition-column-twice", "error", "A partition column is listed twice", _METADATA),
        ("partition-column-type", "error", "A partition column is an array, a map, a struct or a variant", _METADATA),
        ("partition-columns-changed", "error", "The partition columns change while files of the old ones stay live",
         _METADATA),
    )),
    ("format-specification", (
        ("metadata-format", "error", "The format of the table is not parquet", _METADATA),
    )),
    ("schema-serialization-format", (
        ("schema-column-twice", "error", "Two columns have the same name, ignoring case", _METADATA),
        ("schema-column-name", "warning",
         "A column's name has characters that Parquet readers refuse, without column mapping",
         "Enable column mapping by name."),
        ("schema-type-unknown", "error", "A column has a type that the protocol does not define", _METADATA),
        ("schema-key-invalid", "error", "The metadata of a column has a key with a value that is not valid", _METADATA),
    )),
    ("table-properties", (
        ("property-invalid", "error", "A table property has a value that cannot be read",
         "Set the property to a valid value."),
        ("property-unknown", "info", "A delta. property is not known", "Check its spelling."),
    )),
    ("table-features", (
        ("feature-list-missing", "error", "Reader version 3 or writer version 7 without its list of features",
         _FEATURE),
        ("feature-list-unexpected", "error", "A list of features at a protocol version that has none", _FEATURE),
        ("feature-unknown", "warning", "A feature is not known, so not all of the table could be checked",
         "Use a newer deltalog."),
        ("feature-listed-twice", "warning", "A feature is listed twice", _FEATURE),
        ("feature-requires-other", "error", "A feature is listed without another that it requires", _FEATURE),
        ("property-needs-feature", "error", "A table property is on, and the protocol lacks its feature", _FEATURE),
        ("schema-needs-feature", "error", "The schema uses what the protocol lacks a feature for", _FEATURE),
    )),
    ("table-features-for-new-and-existing-tables", (
        ("protocol-reader-without-writer", "error", "Reader version 3 with a writer version below 7", _FEATURE),
    )),
    ("supported-features", (
        ("feature-only-in-reader", "error", "A feature is in readerFeatures and not in writerFeatures", _FEATURE),
        ("feature-only-in-writer", "error", "A feature for readers and writers is not in readerFeatures", _FEATURE),
        ("feature-not-for-readers", "warning",
         "A feature for writers only is in readerFeatures: readers refuse the table needlessly",
         _FEATURE),
    )),
    ("writer-requirements-for-column-mapping", (
        ("column-mapping-id-missing", "error", "A column has no id, or an invalid one, although column mapping is on",
         _METADATA),
        ("column-mapping-name-missing", "error", "A column has no physical name although column mapping is on",
         _METADATA),
        ("column-mapping-id-twice", "error", "Two columns have the same id", _METADATA),
        ("column-mapping-name-twice", "error", "Two columns have the same physical name", _METADATA),
        ("column-mapping-max-id-low", "error", "delta.columnMapping.maxColumnId is missing or below the id of a column",
         _METADATA),
        ("column-mapping-max-id-decreased", "error", "delta.columnMapping.maxColumnId goes down", _METADATA),
        ("column-mapping-column-changed", "error",
         "The id or the physical name of a column changes while its files stay live",
         _METADATA),
        ("column-mapping-mode-changed", "warning", "The column mapping mode changes from name to id or back",
         _METADATA),
    )),
    ("consistency-between-table-metadata-and-data-files", (
        ("partition-values-missing", "error", "A file lacks the value of a partition column", _REWRITE),
        ("partition-values-extra", "warning", "A file has values for columns that are no partition columns", _REWRITE),
        ("column-type-changed", "error", "The type of a column changes, not by widening, while its files stay live",
         _METADATA),
        ("data-column-type-differs", "error", "A column in a data file has another type than in the schema", _REWRITE),
        ("data-file-missing", "error", "A live data file does not exist", _RESTORE),
        ("data-file-size-differs", "error", "A data file has another size than its add action says", _RESTORE),
        ("data-file-unreadable", "error", "A data file is damaged", _RESTORE),
        ("data-file-not-checked", "info", "Data files were not checked: too many, or outside of the table",
         "Run the check with deep=True."),
    )),
    ("partition-value-serialization", (
        ("partition-value-invalid", "error", "A partition value is not a value of its column's type", _REWRITE),
        ("partition-value-null", "error", "A partition value is NULL, and its column is not nullable", _REWRITE),
    )),
    ("data-files", (
        ("data-file-hidden", "warning", "A data file lies in a directory whose name begins with _",
         "Move it in a new commit."),
        ("partition-directory-differs", "info",
         "The directory of a file names another partition value than its add action",
         "Nothing: readers use the value in the add action."),
    )),
    ("per-file-statistics", (
        ("stats-invalid", "error",
         "The statistics of a file are not a JSON object of the form that the protocol defines",
         _STATS),
        ("stats-value-invalid", "error", "A statistic is not a value of its column's type", _STATS),
        ("stats-min-above-max", "error", "A minimum is above its maximum", _STATS),
        ("stats-count-invalid", "error", "A count is negative, or above the number of records", _STATS),
        ("stats-column-unknown", "warning", "Statistics name a column that the schema does not have", _STATS),
        ("stats-contradict-footer", "error", "Statistics contradict the footer of the data file", _STATS),
        ("stats-rounded", "warning", "A bound of a timestamp is rounded the wrong way, by less than a second", _STATS),
        ("stats-contradict-data", "error", "Statistics contradict the rows of the data file", _STATS),
        ("stats-null-in-required-column", "error", "Statistics count NULLs in a column that is not nullable", _REWRITE),
    )),
    ("deletion-vectors", (
        ("vector-without-feature", "error", "A file has a deletion vector, and the protocol lacks deletionVectors",
         _FEATURE),
        ("vector-while-off", "warning", "A commit writes a deletion vector although delta.enableDeletionVectors is off",
         _METADATA),
    )),
    ("deletion-vector-descriptor-schema", (
        ("vector-descriptor-invalid", "error", "The descriptor of a deletion vector is not valid", _REWRITE),
        ("vector-empty", "warning", "A deletion vector deletes no row", _REWRITE),
        ("vector-cardinality-differs", "error",
         "A deletion vector deletes another number of rows than its descriptor says",
         _REWRITE),
    )),
    ("deletion-vector-file-storage-format", (
        ("vector-file-missing", "error", "The file of a deletion vector does not exist", _RESTORE),
        ("vector-unreadable", "error", "A deletion vector is damaged", _RESTORE),
    )),
    ("writer-requirement-for-deletion-vectors", (
        ("vector-without-num-records", "error", "A file with a deletion vector has no numRecords", _STATS),
        ("vector-outside-file", "error", "A deletion vector deletes rows that its file does not have", _REWRITE),
    )),
    ("writer-requirements-for-row-tracking", (
        ("row-id-missing", "error", "A file has no baseRowId or defaultRowCommitVersion although row tracking is on",
         _IDS),
        ("row-id-overlap", "error", "Two live files have the same row ids", _IDS),
        ("row-id-high-water-mark", "error", "The high-water mark of row ids is missing, invalid, or below an id", _IDS),
        ("row-id-high-water-mark-decreased", "error", "The high-water mark of row ids goes down", _IDS),
        ("row-commit-version-wrong", "error", "A new file has another defaultRowCommitVersion than its version", _IDS),
        ("row-id-changed", "error", "A file that is added again has another baseRowId or defaultRowCommitVersion",
         _IDS),
        ("remove-row-id-differs", "warning",
         "A remove action has another baseRowId or defaultRowCommitVersion than its file", _IDS),
        ("row-tracking-columns", "error",
         "The names of the row tracking columns are missing, or are those of other columns",
         _METADATA),
        ("row-tracking-suspended", "warning", "Row tracking is suspended and enabled", _METADATA),
    )),
    ("append-only-tables", (
        ("append-only-violated", "error", "A commit removes rows of a table that is append-only",
         "Restore the version before it."),
    )),
    ("column-invariants", (
        ("invariant-invalid", "warning", "A column invariant cannot be parsed", _METADATA),
        ("data-null-in-required-column", "error", "A column that is not nullable has NULLs in a data file", _REWRITE),
    )),
    ("check-constraints", (
        ("constraint-invalid", "warning", "A CHECK constraint cannot be evaluated by deltalog",
         "Check the expression."),
        ("constraint-violated", "error", "Rows of a data file break a CHECK constraint", "Correct or delete the rows."),
    )),
    ("generated-columns", (
        ("generated-column-invalid", "warning", "The expression of a generated column cannot be evaluated by deltalog",
         "Check it."),
        ("generated-value-wrong", "error", "Values of a generated column are not those of its expression",
         "Correct the rows."),
    )),
    ("identity-columns", (
        ("identity-invalid", "error", "The properties of an identity column are not valid", _METADATA),
        ("identity-changed", "warning", "The start, step or allowExplicitInsert of an identity column changes",
         _METADATA),
        ("identity-mark-invalid", "warning", "The high-water mark of an identity column is not in its sequence",
         _MARK),
        ("identity-mark-low", "error",
         "Files have values of an identity column beyond its high-water mark, which will be generated again", _MARK),
        ("identity-mark-decreased", "warning", "The high-water mark of an identity column moves backwards", _MARK),
        ("identity-value-wrong", "warning", "A value of an identity column is not in its sequence",
         "Correct the rows, unless they were written while allowExplicitInsert was true."),
    )),
    ("writer-requirements-for-clustered-table", (
        ("clustering-with-partitions", "error", "A table is clustered and partitioned", _METADATA),
        ("clustering-column-unknown", "error", "The clustering columns are not valid, or not in the schema", _METADATA),
        ("clustering-domain-missing", "warning", "A clustered table has no domain delta.clustering", _METADATA),
    )),
    ("writer-requirements-for-type-widening", (
        ("type-change-invalid", "error", "A recorded type change is not one that the protocol allows", _METADATA),
        ("type-change-unrecorded", "error", "The type of a column was widened and the schema does not record it",
         _METADATA),
    )),
    ("writer-requirements-for-icebergcompatv1", (
        ("iceberg-v1-violated", "error", "The table breaks a requirement of icebergCompatV1", _METADATA),
    )),
    ("writer-requirements-for-icebergcompatv2", (
        ("iceberg-v2-violated", "error", "The table breaks a requirement of icebergCompatV2", _METADATA),
        ("iceberg-file-violated", "warning", "A data file breaks a requirement of Iceberg compatibility",
         "Rewrite the file (REORG TABLE … APPLY (UPGRADE UNIFORM))."),
    )),
    ("writer-requirements-for-catalog-managed-tables", (
        ("catalog-without-ict", "error", "A table of a catalog does not have in-commit timestamps on", _METADATA),
    )),
    ("publishing-commits", (
        ("staged-commit-differs", "warning",
         "A published commit differs from every staged commit of its version",
         "Ask the catalog which one it ratified."),
        ("published-commit-differs", "error", "A published commit is not the one that the catalog ratified",
         "Publish the ratified commit: readers without the catalog read another one."),
        ("staged-commit-missing", "error", "A commit that the catalog ratified is neither staged nor published",
         "Restore the file from a copy of the table."),
    )),
    ("reading-catalog-managed-tables", (
        ("catalog-not-consulted", "info", "A catalog manages the table and may have later versions than its log",
         "Check the table through its catalog."),
    )),
)  # fmt: skip
