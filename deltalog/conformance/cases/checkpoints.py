"""Cases about reading and writing log compaction files, and checkpoints in all formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from deltalog.conformance.builder import DAY, TableBuilder
from deltalog.conformance.case import CHECKPOINTS, REFERENCE, Case, LatestVersion, Log, Refused, Row, Rows, Step, Write
from deltalog.conformance.cases.common import Build, Cases, Timeline, ids

_case = Cases("checkpoint", CHECKPOINTS, "checkpoints")
# Log clean-up is off, because the commits of these logs date from 2025 and the engine must not delete them.
KEEP = {"delta.enableExpiredLogCleanup": "false"}
V2 = {"delta.checkpointPolicy": "v2"}
FIVE = Timeline(at=(0, 1, 2, 3, 4), properties=KEEP)
_HINT = "_last_checkpoint"


def cases() -> Iterator[Case]:
    yield from _read()
    yield from _hints()
    yield from _v2()
    yield from _compaction()
    yield from _parts()
    yield from _written()


def _read() -> Iterator[Case]:
    for version in (0, 2, 4):
        about = f"A checkpoint of version {version} in a log of five versions"
        yield _case(f"at-{version}", about, FIVE.but(checkpoints=(version,)), Rows(ids(4)), LatestVersion(4))
        about = f"A checkpoint of version {version} without earlier commits"
        alone = FIVE.but(checkpoints=(version,), dropped=range(version))
        yield _case(f"alone-at-{version}", about, alone, Rows(ids(4)), LatestVersion(4))
    about = "A checkpoint of the latest version in a log without commit files"
    yield _case(
        "without-commit",
        about,
        FIVE.but(checkpoints=(4,), dropped=range(5)),
        Rows(ids(4)),
        rule="checkpoint-without-commit",
    )
    yield _case("two", "Two checkpoints", FIVE.but(checkpoints=(1, 3), dropped=(0, 1, 2)), Rows(ids(4)))

    def contents(change: Callable[[TableBuilder], None]) -> Build:
        """A table whose state is only in a checkpoint."""

        def build(table: TableBuilder) -> None:
            change(table)
            last = table.next_version - 1
            table.checkpoint()
            table.drop_commits(*range(last + 1))
            table.commit()

        return build

    def removed(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first, table.add([{"id": 1}]))
        table.commit(table.remove(first))

    yield _case("removed-file", "A removed file is not live in a checkpoint", contents(removed), Rows(ids(1, 1)))

    def partitioned(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        files = [table.add([{"id": n}], {"p": p}) for n, p in enumerate(("a", None, "ü b"))]
        table.commit(table.protocol(), table.metadata(schema, ["p"]), *files)

    rows: list[Row] = [{"id": 0, "p": "a"}, {"id": 1, "p": None}, {"id": 2, "p": "ü b"}]
    yield _case("partitioned", "Partition values in a checkpoint", contents(partitioned), Rows(rows))

    def encoded(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}], path="a b%.parquet"))

    yield _case("encoded-path", "A percent-encoded path in a checkpoint", contents(encoded), Rows(ids(0)))

    def vector(table: TableBuilder) -> None:
        added = table.add([{"id": n} for n in range(4)])
        metadata = table.metadata(configuration={"delta.enableDeletionVectors": "true"})
        table.commit(
            table.protocol(["deletionVectors"], ["deletionVectors"]), metadata, table.with_deleted(added, [0, 2])
        )

    about = "A deletion vector in a checkpoint"
    yield _case("vector", about, contents(vector), Rows([{"id": 1}, {"id": 3}]), section="deletion-vectors")

    def schema(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), table.add([{"id": 0}]))
        table.commit(table.metadata(pa.schema([("id", pa.int64()), ("v", pa.string())])))

    yield _case("schema", "The schema in a checkpoint is the latest", contents(schema), Rows([{"id": 0, "v": None}]))

    def empty(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata())

    yield _case("no-files", "A checkpoint of a table without files", contents(empty), Rows([]))

    def many(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(), *(table.add([{"id": n}]) for n in range(60)))

    yield _case("60-files", "A checkpoint with 60 files", contents(many), Rows(ids(59)))

    def damaged(table: TableBuilder) -> None:
        FIVE.but(checkpoints=(2,))(table)
        (table.log / f"{2:020d}.checkpoint.parquet").write_bytes(b"PAR1 no checkpoint PAR1")

    def damaged_alone(table: TableBuilder) -> None:
        damaged(table)
        table.drop_commits(0, 1)

    about = "A damaged checkpoint without the commits before it is refused"
    yield _case("damaged-alone", about, damaged_alone, Refused(Rows(ids(4))), rule="checkpoint-unreadable")


def _parts() -> Iterator[Case]:
    """Multi-part checkpoints, which are deprecated but which readers must support."""

    def split(own: Timeline, version: int, without: tuple[int, ...], dropped: Iterable[int]) -> Build:
        def build(table: TableBuilder) -> None:
            own(table)
            table.split_checkpoint(version, 3, without)
            table.drop_commits(*dropped)

        return build

    section = "problems-with-multi-part-checkpoints"
    rows = (
        ("parts", "A checkpoint in three parts without earlier commits", (3,), (), range(4), "multi-part-checkpoint"),
        ("parts-incomplete", "A checkpoint that lacks one of its three parts, with all commits", (3,), (2,), (), None),
        (
            "parts-incomplete-older",
            "A checkpoint that lacks one of its three parts, with an older checkpoint",
            (1, 3),
            (1,),
            (0, 1),
            None,
        ),
    )
    for name, about, checkpoints, without, dropped, rule in rows:
        build = split(FIVE.but(checkpoints=checkpoints), 3, without, dropped)
        rule = rule or "multi-part-checkpoint-incomplete"
        yield _case(name, about, build, Rows(ids(4)), section=section, rule=rule)


def _hints() -> Iterator[Case]:
    """``_last_checkpoint`` is a hint: a wrong one does not change the rows."""
    section = "last-checkpoint-file"

    def hinted(content: str | None, *checkpoints: int) -> Build:
        def build(table: TableBuilder) -> None:
            FIVE.but(checkpoints=checkpoints)(table)
            (table.log / _HINT).unlink(missing_ok=True)
            if content is not None:
                (table.log / _HINT).write_text(content)

        return build

    def hint(version: int) -> str:
        return json.dumps({"version": version, "size": 7})

    rows: tuple[tuple[str, str, str | None, tuple[int, ...], str | None], ...] = (
        ("absent", "is absent", None, (2,), "last-checkpoint-missing"),
        ("garbage", "is not JSON", "{", (2,), "last-checkpoint-unreadable"),
        ("empty", "is empty", "", (2,), "last-checkpoint-unreadable"),
        ("stale", "names an older checkpoint", hint(1), (1, 3), "last-checkpoint-stale"),
        (
            "wrong-size",
            "has a wrong number of actions",
            json.dumps({"version": 2, "size": 10**6}),
            (2,),
            "last-checkpoint-size-differs",
        ),
        (
            "unknown-member",
            "has an unknown field",
            json.dumps({"version": 2, "size": 7, "x": [1]}),
            (2,),
            None,
        ),
    )
    for name, about, content, versions, rule in rows:
        yield _case(
            f"hint-{name}",
            f"_last_checkpoint {about}",
            hinted(content, *versions),
            Rows(ids(4)),
            section=section,
            rule=rule,
        )
    about = "_last_checkpoint names a checkpoint that does not exist"
    yield _case(
        "hint-missing",
        about,
        hinted(hint(3), 1),
        Rows(ids(4)),
        section=section,
        rule="last-checkpoint-to-missing",
        basis=REFERENCE,
    )


def _v2() -> Iterator[Case]:
    section = "v2-spec"

    def checkpointed(dropped: bool, **options: object) -> Build:
        def build(table: TableBuilder) -> None:
            metadata = table.metadata(configuration={**V2, **KEEP})
            table.commit(table.protocol(["v2Checkpoint"], ["v2Checkpoint"]), metadata, table.add([{"id": 0}]))
            for number in range(1, 4):
                table.commit(table.add([{"id": number}]))
            table.checkpoint(**options)
            if dropped:
                table.drop_commits(0, 1, 2)
            table.commit(table.add([{"id": 4}]))

        return build

    for form in ("parquet", "json"):
        for name, about, sidecar_rows in (("", "", 10**6), ("-sidecars", ", with sidecars", 2)):
            build = checkpointed(True, top_level=form, sidecar_rows=sidecar_rows)
            yield _case(
                f"v2-{form}{name}", f"A V2 checkpoint in {form.upper()}{about}", build, Rows(ids(4)), section=section
            )

    def without(table: TableBuilder) -> None:
        checkpointed(True, top_level="parquet", sidecar_rows=2)(table)
        sorted((table.log / "_sidecars").iterdir())[0].unlink()

    about = "A version with a missing sidecar is refused"
    yield _case("v2-sidecar-missing", about, without, Refused(Rows(ids(4))), section=section, rule="sidecar-missing")
    about = "A V2 checkpoint with all commits"
    yield _case(
        "v2-and-commits", about, checkpointed(False, top_level="json", sidecar_rows=2), Rows(ids(4)), section=section
    )


def _compaction() -> Iterator[Case]:
    section = "log-compaction-files"

    def compacted(*ranges: tuple[int, int]) -> Build:
        def build(table: TableBuilder) -> None:
            FIVE(table)
            for start, end in ranges:
                table.compact(start, end)

        return build

    for name, ranges in (("start", [(0, 2)]), ("middle", [(1, 3)]), ("end", [(2, 4)]), ("two", [(0, 1), (2, 4)])):
        about = f"Log compaction files of {' and '.join(f'{start} to {end}' for start, end in ranges)}"
        yield _case(
            f"compaction-{name}", about, compacted(*ranges), Rows(ids(4)), Rows(ids(2), version=2), section=section
        )

    def removing(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(), first)
        table.commit(table.add([{"id": 1}]))
        table.commit(table.remove(first))
        table.compact(1, 2)

    about = "A tombstone in a log compaction file removes an older file"
    yield _case("compaction-tombstone", about, removing, Rows(ids(1, 1)), section=section)


def _written() -> Iterator[Case]:
    """Checkpoints written by the engine. deltalog reads the rows from the checkpoint alone, without the commits."""
    section = "writer-requirements"
    write = Write("checkpoint")

    def good(version: int, rows: list[Row]) -> tuple[Step, ...]:
        return (
            Log("checkpoint", value=version),
            Log("checkpoint-without-commit-info", value=version),
            Log("rows-by-checkpoint", value=rows),
            Rows(rows),
        )

    def kept(table: TableBuilder, **properties: str) -> dict[str, str]:
        return {**KEEP, **properties}

    yield _case("write", "A checkpoint of five appends", FIVE, write, *good(4, ids(4)), section="checkpoints-1")
    yield _case(
        "write-hint",
        "_last_checkpoint names a new checkpoint",
        FIVE,
        write,
        Log("last-checkpoint", value=4),
        section="last-checkpoint-file",
    )

    def removed(table: TableBuilder) -> None:
        first = table.add([{"id": 0}])
        table.commit(table.protocol(), table.metadata(configuration=kept(table)), first, table.add([{"id": 1}]))
        table.commit(table.remove(first, at_ms=4_000_000_000_000 - DAY))

    yield _case(
        "write-removed", "A checkpoint after a removal", removed, write, *good(1, [{"id": 1}]), section="checkpoints-1"
    )

    def partitioned(table: TableBuilder) -> None:
        schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
        files = [table.add([{"id": n}], {"p": p}) for n, p in enumerate(("a", None))]
        table.commit(table.protocol(), table.metadata(schema, ["p"], kept(table)), *files)

    rows: list[Row] = [{"id": 0, "p": "a"}, {"id": 1, "p": None}]
    yield _case(
        "write-partitioned",
        "A checkpoint of a partitioned table",
        partitioned,
        write,
        *good(0, rows),
        section="checkpoints-1",
    )

    def vectors(table: TableBuilder) -> None:
        added = table.add([{"id": n} for n in range(4)])
        metadata = table.metadata(configuration=kept(table, **{"delta.enableDeletionVectors": "true"}))
        table.commit(table.protocol(["deletionVectors"], ["deletionVectors"]), metadata, table.with_deleted(added, [0]))

    three: list[Row] = [{"id": n} for n in (1, 2, 3)]
    yield _case(
        "write-vector", "A checkpoint with a deletion vector", vectors, write, *good(0, three), section="checkpoints-1"
    )

    def identified(table: TableBuilder) -> None:
        table.commit(table.protocol(), table.metadata(configuration=kept(table)), table.add([{"id": 0}]))
        table.commit({"txn": {"appId": "app", "version": 7}}, {"txn": {"appId": "other", "version": 1}})

    zero: list[Row] = [{"id": 0}]
    about = "A checkpoint keeps transaction identifiers"
    yield _case(
        "write-txn",
        about,
        identified,
        write,
        *good(1, zero),
        Log("checkpoint-has-txn", value=["app", 7]),
        section="transaction-identifiers",
    )

    def domains(table: TableBuilder) -> None:
        table.commit(
            table.protocol(["domainMetadata"]), table.metadata(configuration=kept(table)), table.add([{"id": 0}])
        )
        table.commit({"domainMetadata": {"domain": "x", "configuration": "{}", "removed": False}})

    about = "A checkpoint keeps metadata domains"
    yield _case(
        "write-domain",
        about,
        domains,
        write,
        *good(1, zero),
        Log("checkpoint-has-domain", value="x"),
        section="domain-metadata",
    )
    about = "A second checkpoint after another append"
    yield _case(
        "write-again",
        about,
        FIVE.but(checkpoints=(2,)),
        Write("append", rows=[{"id": 5}]),
        write,
        *good(5, ids(5)),
        section="checkpoints-1",
    )
    steps = (write, Write("append", rows=[{"id": 5}]), Rows(ids(5)), LatestVersion(5))
    yield _case("write-then-append", "An append after a checkpoint", FIVE, *steps, section=section)
