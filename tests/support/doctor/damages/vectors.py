"""Damages to deletion vectors."""

from __future__ import annotations

from tests.support.doctor.damaged_tables import (
    Damage,
    case,
    delete,
    edit_action,
    edit_stats,
    inline_vector,
    truncate,
    vector_field,
    with_vector_file,
    with_vectors,
)

VECTORS: list[Damage] = [
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
    case("damaged inline vector", with_vectors, inline_vector(pathOrInlineDv="abc"), "vector-unreadable"),
    case("inline vector with an offset", with_vectors, inline_vector(offset=3), "vector-descriptor-invalid"),
    case("vector of no kind", with_vectors, vector_field(storageType="z"), "action-invalid"),
    case("vector file missing", with_vector_file, delete("deletion_vector*.bin"), "vector-file-missing"),
    case("vector file damaged", with_vector_file, truncate("deletion_vector*.bin"), "vector-unreadable"),
]
