"""Cases about reading: paths, action reconciliation, and logs that must be refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator

import pyarrow as pa

from deltalog.conformance.builder import TableBuilder
from deltalog.conformance.case import READING, REFERENCE, Case, LatestVersion, MayRefuse, Refused, Row, Rows, Step
from deltalog.conformance.cases.common import Build, Cases, ids

UTC = datetime.timezone.utc
_case = Cases("read", READING, "action-reconciliation")


def cases() -> Iterator[Case]:
    yield from _paths()
    yield from _replay()
    yield from _columns()
    yield from _other_files()
    yield from _damaged()


# --------------------------------------------------------------------------------------------- paths


def _paths() -> Iterator[Case]:
    section = "add-file-and-remove-file"
    names = {
        "space": "a b.parquet",
        "percent": "a%20b.parquet",
        "percent-sign": "100%.parquet",
        "unicode": "grün-日.parquet",
        "plus": "a+b.parquet",
        "hash": "a#b.parquet",
        "question": "a?b.parquet",
        "ampersand": "a&b=c.parquet",
        "directories": "x/y/z.parquet",
        "hive": "p=a%20b/part.parquet",
        "brackets": "a[1]{2}.parquet",
        "quote": "a'b.parquet",
    }
    for name, path in names.items():

        def build(table: TableBuilder, path: str = path) -> None:
            table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}], path=path))

        yield _case(f"path-{name}", f"A file named {path!r}, encoded in the log", build, Rows(ids(0)), section=section)

    def encoded(table: TableBuilder) -> None:
        first = table.add([{"id": 0}], path="a b.parquet")
        table.commit(table.protocol(), table.metadata(), first, table.add([{"id": 1}]))
        table.commit(table.remove(first))

    yield _case(
        "path-encoded-removed",
        "A file with a percent-encoded path is removed",
        encoded,
        Rows(ids(1, 1)),
        section=section,
    )

    def outside(table: TableBuilder) -> None:
        add = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), {"add": {**add["add"], "path": "part-99999.parquet"}})

    yield _case(
        "path-missing",
        "A missing data file is an error, not an absence of rows",
        outside,
        Refused(Rows([])),
        section=section,
        rule="data-file-missing",
    )


# ----------------------------------------------------------------------------------------- log replay


def _replay() -> Iterator[Case]:
    def removed(table: TableBuilder) -> None:
        first, second = table.add([{"id": 0}]), table.add([{"id": 1}])
        table.commit(table.protocol(), table.metadata(), first, second)
        table.commit(table.remove(first))

    yield _case("removed", "A removed file is not read", removed, Rows(ids(1, 1)), Rows(ids(1), version=0))

    def added_again(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first)
        table.commit(table.remove(first))
        table.commit(first)

    yield _case(
        "added-again", "A file that was removed and re-added is read", added_again, Rows(ids(0)), Rows([], version=1)
    )

    def twice(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first)
        table.commit({"add": {**first["add"], "dataChange": False, "tags": {"x": "y"}}})

    yield _case("added-twice", "A file re-added with different values is read once", twice, Rows(ids(0)))

    def order(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(first, table.metadata(), table.add([{"id": 1}]), table.protocol(), info="last")

    yield _case("any-order", "The actions of a commit may have any order", order, Rows(ids(1)))

    def replaced(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first)
        table.commit(table.add([{"id": 7}]), table.remove(first))

    yield _case("replaced", "A commit adds one file and removes another, add first", replaced, Rows([{"id": 7}]))

    def stranger(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first)
        gone = table.add([{"id": 5}])
        table.commit(table.remove(gone))

    yield _case(
        "removed-unknown",
        "A tombstone of a file that was never added has no effect",
        stranger,
        Rows(ids(0)),
        rule="remove-not-live",
    )

    def unknown(table: TableBuilder) -> None:
        add = table.add([{"id": 0}])
        extra = {"add": {**add["add"], "x": {"y": [1, None]}}}
        table.commit(
            table.protocol(), table.metadata(x=1), extra, {"newAction": {"a": 1}}, {"txn": {"appId": "a", "version": 1}}
        )

    yield _case(
        "unknown-actions",
        "Unknown actions and fields are ignored",
        unknown,
        Rows(ids(0)),
        section="protocol-evolution",
        rule="action-unknown",
    )

    def empty(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata())

    yield _case("no-files", "A table without files has no rows", empty, Rows([]), LatestVersion(0))

    def nothing(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
        table.commit()
        table.commit(info="first")

    yield _case("empty-commits", "Commits with only commitInfo change no rows", nothing, Rows(ids(0)), LatestVersion(2))

    def all_gone(table: TableBuilder) -> None:
        files = [table.add([{"id": n}]) for n in range(3)]
        table.commit(table.protocol(), table.metadata(), *files)
        table.commit(*map(table.remove, files))

    yield _case("all-removed", "All files are removed", all_gone, Rows([]), Rows(ids(2), version=0))

    for count in (2, 11, 101):

        def long(table: TableBuilder, count: int = count) -> None:
            table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
            for number in range(1, count):
                table.commit(table.add([{"id": number}]))

        yield _case(
            f"{count}-commits",
            f"A log of {count} commits without a checkpoint",
            long,
            Rows(ids(count - 1)),
            LatestVersion(count - 1),
        )

    def bare(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}], stats=False), info="absent")
        table.commit(table.add([{"id": 1}], stats={}), info="absent")

    yield _case(
        "no-commit-info",
        "Commits without commitInfo, files without statistics",
        bare,
        Rows(ids(1)),
        section="commit-provenance-information",
        rule="commit-info-absent",
    )

    def odd_remove(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first, table.add([{"id": 1}]))
        table.commit({"remove": {"path": first["add"]["path"], "dataChange": True}})

    yield _case(
        "short-tombstone",
        "A tombstone with only a path",
        odd_remove,
        Rows(ids(1, 1)),
        section="add-file-and-remove-file",
    )

    def no_newline(table: TableBuilder) -> None:
        actions = [table.protocol(), table.metadata(), table.add([{"id": 0}])]
        table.commit(text="\n".join(json.dumps(action) for action in actions))

    yield _case(
        "no-last-newline",
        "The last line of a commit has no newline",
        no_newline,
        Rows(ids(0)),
        section="delta-log-entries",
    )

    def nulls(table: TableBuilder) -> None:
        kinds = ("add", "remove", "metaData", "protocol", "txn", "commitInfo")
        actions = [table.protocol(), table.metadata(), table.add([{"id": 0}])]
        table.commit(text="".join(json.dumps({**dict.fromkeys(kinds), **action}) + "\n" for action in actions))

    yield _case(
        "null-members",
        "Lines in which all other action keys are null",
        nulls,
        Rows(ids(0)),
        section="actions",
        basis=REFERENCE,
    )


# ----------------------------------------------------------------------------------- columns of tables


def _columns() -> Iterator[Case]:
    section = "consistency-between-table-metadata-and-data-files"
    wide = pa.schema([("id", pa.int64()), ("v", pa.string())])
    both: list[Row] = [{"id": 0, "v": None}, {"id": 1, "v": "x"}]

    def later(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
        table.commit(table.metadata(wide), table.add([{"id": 1, "v": "x"}]))

    yield _case(
        "column-added",
        "A column that was added later is null in older files",
        later,
        Rows(both),
        Rows(ids(0), version=0),
        section=section,
    )

    def order(table: TableBuilder) -> None:
        rows = pa.table({"v": ["x"], "id": pa.array([1], pa.int64())})
        table.commit(table.protocol(), table.metadata(wide), table.add(rows))

    yield _case(
        "column-order",
        "The columns of a file have a different order",
        order,
        Rows([{"id": 1, "v": "x"}]),
        section=section,
    )

    def more(table: TableBuilder) -> None:
        rows = pa.table({"id": pa.array([1], pa.int64()), "left_over": ["x"]})
        table.commit(table.protocol(), table.metadata(), table.add(rows))

    yield _case("column-extra", "A file has a column that the table lacks", more, Rows([{"id": 1}]), section=section)

    def required(table: TableBuilder) -> None:
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
        table.commit(table.protocol(), table.metadata(schema), table.add([{"id": 1, "v": None}]))

    yield _case(
        "column-not-null",
        "A non-nullable column",
        required,
        Rows([{"id": 1, "v": None}]),
        section="struct-field",
    )

    def names(table: TableBuilder) -> None:
        schema = pa.schema([("a.b", pa.int64()), ("select", pa.int64()), ("Ünï", pa.int64()), ("x-y", pa.int64())])
        table.commit(table.protocol(), table.metadata(schema), table.add([{"a.b": 1, "select": 2, "Ünï": 3, "x-y": 4}]))

    yield _case(
        "column-names",
        "Column names with dots, umlauts, hyphens, and an SQL keyword",
        names,
        Rows([{"a.b": 1, "select": 2, "Ünï": 3, "x-y": 4}]),
        section="schema-serialization-format",
    )

    def nested(table: TableBuilder) -> None:
        one = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64())]))])
        two = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.int64())]))])
        table.commit(table.protocol(), table.metadata(one), table.add([{"id": 0, "s": {"a": 1}}, {"id": 1, "s": None}]))
        table.commit(table.metadata(two), table.add([{"id": 2, "s": {"a": 1, "b": 2}}]))

    yield _case(
        "field-added",
        "A struct field that was added later is null in older files",
        nested,
        Rows([{"id": 0, "s": {"a": 1, "b": None}}, {"id": 1, "s": None}, {"id": 2, "s": {"a": 1, "b": 2}}]),
        section=section,
    )

    def wrong_stats(table: TableBuilder) -> None:
        stats = {"numRecords": 2, "minValues": {"id": 1}, "maxValues": {"id": 2}, "nullCount": {"id": 0}, "x": 1}
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 1}, {"id": 2}], stats=stats))

    yield _case(
        "statistics",
        "Wrong statistics do not change the rows",
        wrong_stats,
        Rows([{"id": 1}, {"id": 2}]),
        section="per-file-statistics",
    )


# --------------------------------------------------------------------------------------------- other files


def _other_files() -> Iterator[Case]:
    def plain(change: Callable[[TableBuilder], None]) -> Build:
        def build(table: TableBuilder) -> None:
            table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
            table.commit(table.add([{"id": 1}]))
            change(table)

        return build

    def stray(table: TableBuilder) -> None:
        table.add([{"id": 99}])

    section = "file-types"
    good = (Rows(ids(1)), LatestVersion(1))
    yield _case(
        "stray-data-file", "A Parquet file that is not in the log is not read", plain(stray), *good, section=section
    )
    strays = {
        "temporary": ("00000000000000000002.json.tmp", "a temporary file of a commit"),
        "hidden": (".00000000000000000002.json", "a hidden file"),
        "text": ("notes.txt", "a text file"),
        "short-name": ("2.json", "a commit file name with too few digits"),
        "uuid-json": (
            "00000000000000000002.0a1b2c3d-0000-0000-0000-000000000000.json",
            "a commit named like a staged commit",
        ),
    }
    for name, (file, about) in strays.items():

        def build(table: TableBuilder, file: str = file) -> None:
            table.write_log_file(file, '{"commitInfo":{}}\n')

        yield _case(f"stray-{name}", f"The log contains {about}", plain(build), *good, section=section)

    def crc(text: str) -> Callable[[TableBuilder], None]:
        return lambda table: table.write_log_file("00000000000000000001.crc", text)

    checksum = "version-checksum-file"
    yield _case(
        "crc-garbage",
        "A .crc that is not JSON is ignored",
        plain(crc("{")),
        *good,
        section=checksum,
        basis=REFERENCE,
        rule="crc-unreadable",
    )
    yield _case(
        "crc-empty",
        "An empty .crc is ignored",
        plain(crc("")),
        *good,
        section=checksum,
        basis=REFERENCE,
        rule="crc-unreadable",
    )


# ----------------------------------------------------------------------------------- unreadable tables


def _damaged() -> Iterator[Case]:
    """Unreadable tables must be refused: returning part of the rows would be wrong."""
    section = "delta-log-entries"

    def log(*texts: str | None) -> Build:
        """Build a log with version 0 and one further commit per argument; None stands for an append."""

        def build(table: TableBuilder) -> None:
            table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
            for number, text in enumerate(texts, start=1):
                if text is None:
                    table.commit(table.add([{"id": number}]))
                else:
                    table.commit(text=text)

        return build

    refused: Step = Refused(Rows(ids(0)))
    yield _case(
        "torn-commit",
        "The latest commit is truncated within a line",
        log('{"add":{"path":"pa'),
        refused,
        section=section,
        rule="commit-truncated",
    )
    yield _case(
        "not-json", "A commit is not JSON", log("nonsense\n"), refused, section=section, rule="commit-invalid-json"
    )
    yield _case(
        "torn-between",
        "A commit in the middle is truncated",
        log('{"add":{', None),
        refused,
        section=section,
        rule="commit-invalid-json",
    )

    def gap(table: TableBuilder) -> None:
        log(None, None, None)(table)
        table.drop_commits(2)

    yield _case(
        "gap", "A commit is missing between two others", gap, Refused(Rows(ids(3))), section=section, rule="version-gap"
    )

    def beginning(table: TableBuilder) -> None:
        log(None, None)(table)
        table.drop_commits(0)

    yield _case(
        "no-beginning",
        "Version 0 is missing, and there is no checkpoint",
        beginning,
        Refused(Rows(ids(2, 1))),
        section=section,
        rule="log-start-missing",
    )

    def without(kind: str) -> Build:
        def build(table: TableBuilder) -> None:
            actions = [table.protocol(), table.metadata(), table.add([{"id": 0}])]
            table.commit(*(action for action in actions if kind not in action))

        return build

    yield _case(
        "no-protocol",
        "A log without a protocol",
        without("protocol"),
        refused,
        section="protocol-evolution",
        rule="protocol-missing",
    )
    yield _case(
        "no-metadata",
        "A log without metaData",
        without("metaData"),
        refused,
        section="change-metadata",
        rule="metadata-missing",
    )

    def schema(text: str) -> Build:
        return lambda table: (table.commit(table.protocol(), table.metadata(text), table.add([{"id": 0}])), None)[1]

    yield _case(
        "bad-schema",
        "A schema that is not JSON",
        schema("not json"),
        refused,
        section="schema-serialization-format",
        rule="metadata-schema-invalid",
    )
    unknown = '{"type":"struct","fields":[{"name":"id","type":"quaternion","nullable":true,"metadata":{}}]}'
    yield _case(
        "unknown-type",
        "A schema with a type that does not exist",
        schema(unknown),
        refused,
        section="primitive-types",
        rule="schema-type-unknown",
    )

    def empty(table: TableBuilder) -> None:
        return

    yield _case("no-log", "An empty log is not a table", empty, Refused(Rows([])), section=section, rule="log-missing")

    def damaged_file(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
        (table.root / "part-00000.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")

    yield _case(
        "damaged-file",
        "A data file that is not Parquet",
        damaged_file,
        refused,
        section="data-files",
        rule="data-file-unreadable",
    )

    def value(table: TableBuilder) -> None:
        wide = pa.schema([("id", pa.int64()), ("p", pa.int32())])
        table.commit(table.protocol(), table.metadata(wide, ["p"]), table.add([{"id": 0}], {"p": "seven"}))

    yield _case(
        "bad-partition-value",
        "A partition value that is not a number",
        value,
        MayRefuse(Rows([{"id": 0, "p": None}])),
        section="partition-value-serialization",
        basis=REFERENCE,
        rule="partition-value-invalid",
    )
