"""Notes that explain why a section of PROTOCOL.md has no module, or has neither a doctor rule nor a conformance case.

tests/house/test_protocol_coverage.py fails if a section has a note but does not need one.
"""

from __future__ import annotations

_HEAD = "This section only introduces the sections below it."
_EXAMPLE = "An example."
_TERMS = "Terminology."
_CATALOG = "No case of its own; the cases about catalog-managed tables and tests/unit/catalog test it."
_NO_CASE = "No rule and no case yet."
_IN_OTHERS = "No case of its own; the cases of the sections that use it test it too."
_VARIANT = "No case of its own; the cases of the sections on variants and their files test it."
_ICEBERG = "deltalog reads these tables but refuses to write them (protocol/features)."
_VACUUM = (
    "The kit has no vacuum; tests/unit/maintenance/vacuum/test_vacuum.py tests that vacuum checks the protocol first."
)

NOTES: dict[str, str] = {
    "delta-transaction-log-protocol": _HEAD,
    "overview": _HEAD,
    "delta-table-specification": _HEAD,
    "deletion-vector-files": _IN_OTHERS,
    "change-data-files": _IN_OTHERS,
    "file-size-histogram-schema": "The rules for the version checksum file check the histograms too.",
    "deleted-record-counts-histogram-schema": "The rules for the version checksum file check the histograms too.",
    "state-validation": "`deltalog check` compares each `.crc` with the commits.",
    "reader-requirements": (
        "Most of these rules are permissions; the cases of Version Checksum File include invalid checksum files."
    ),
    "checkpoint-metadata": _IN_OTHERS,
    "active-features": "Each feature defines when it is active; the cases are in the features' sections.",
    "field-path": _IN_OTHERS,
    "json-example-1--on-disk-with-relative-path-with-random-prefix": _EXAMPLE,
    "json-example-2--on-disk-with-absolute-path": _EXAMPLE,
    "json-example-3--inline": _EXAMPLE,
    "reader-requirements-for-deletion-vectors": _NO_CASE,
    "terminology-delta-client": _TERMS,
    "terminology-catalogs": _TERMS,
    "catalog-responsibilities": _CATALOG,
    "commit-protocol": _CATALOG,
    "getting-ratified-commits-from-the-catalog": _CATALOG,
    "maintenance-operations-on-catalog-managed-tables": _CATALOG,
    "creating-and-dropping-catalog-managed-tables": _CATALOG,
    "catalog-managed-table-enablement": _CATALOG,
    "table-discovery": _CATALOG,
    "sample-catalog-client-api": _EXAMPLE,
    "iceberg-compatibility-v1": _ICEBERG,
    "writer-requirements-for-icebergcompatv1": _ICEBERG,
    "iceberg-compatibility-v2": _ICEBERG,
    "writer-requirements-for-icebergcompatv2": _ICEBERG,
    "example-of-storing-identifiers-for-nested-fields-in-arraytype-and-maptype": _EXAMPLE,
    "vacuum-protocol-check": _VACUUM,
    "writer-requirements-for-vacuum-protocol-check": _VACUUM,
    "reader-requirements-for-vacuum-protocol-check": _VACUUM,
    "variant-data-type": _VARIANT,
    "example-json-encoded-delta-table-schema-with-variant-types": _EXAMPLE,
    "enablement": "tests/unit/rows/test_variants.py tests which files are shredded.",
    "additional-requirements-for-writers": _HEAD,
    "checkpoint-specs": _HEAD,
    "checkpoint-naming-scheme": _HEAD,
    "classic-checkpoint": _NO_CASE,
    "multi-part-checkpoint": _NO_CASE,
    "handling-backward-compatibility-while-moving-to-uuid-named-v2-checkpoints": (
        "Only a recommendation. deltalog writes V2 checkpoints with UUID names, unless another form is requested."
    ),
    "data-files-1": "File names contain a random UUID; the rules for data files report a file that is named twice.",
    "requirements-for-readers": _HEAD,
    "appendix": _HEAD,
    "valid-feature-names-in-table-features": "The cases of table features include known, unknown and misplaced names.",
    "struct-type": "The cases of schema serialization include structs, arrays and maps, each alone and nested.",
    "array-type": "The cases of schema serialization include structs, arrays and maps, each alone and nested.",
    "variant-type": _VARIANT,
    "column-metadata": "These keys are tested by the cases of the features that define them.",
    "example": _EXAMPLE,
    "checkpoint-schema": "Every case with a checkpoint reads it; the doctor reports defects by section.",
    "how-to-url-encode-keys-and-string-values": _IN_OTHERS,
    "delta-data-type-to-parquet-type-mappings": _NO_CASE,
}
