"""Functions that damage statistics, and data files that contradict their statistics."""

from __future__ import annotations

import pyarrow as pa

from tests.support.doctor.damaged_tables import Damage, case, constrained, edit_action, edit_stats, plain, rewrite_rows

STATISTICS: list[Damage] = [
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
]
