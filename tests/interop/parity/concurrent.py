"""Another writer commits while the job of a write runs. A task of the Spark job acts as the concurrent writer and
commits with deltalog."""

from tests.interop.parity.scenarios import scenario
from tests.interop.parity.tables import Table

PARTS = (
    "create table {t} (id bigint, p string) using delta partitioned by (p)",
    "insert into {t} values (1, 'a'), (2, 'b')",
)
MORE = "select 9L as id, 'b' as p"


def appends(value: str):
    def act(path: str) -> None:
        import pyarrow as pa

        import deltalog

        deltalog.DeltaTable.open(path).append(pa.table({"id": pa.array([5], pa.int64()), "p": [value]}))

    return act


def changes(sets: dict[str, str]):
    def act(path: str) -> None:
        import deltalog

        deltalog.DeltaTable.open(path).set_properties(sets)

    return act


def deletes(where: str):
    def act(path: str) -> None:
        import deltalog

        deltalog.DeltaTable.open(path).delete(where)

    return act


@scenario("an append, meanwhile an append")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append(MORE, meanwhile=appends("b"))


@scenario("an append, meanwhile a delete")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append(MORE, meanwhile=deletes("p = 'a'"))


@scenario("an append, meanwhile a change of properties")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.append(MORE, meanwhile=changes({"delta.checkpointInterval": "9"}))


@scenario("an overwrite, meanwhile an append")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite(MORE, meanwhile=appends("b"))


@scenario("an overwrite, meanwhile a delete")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite(MORE, meanwhile=deletes("p = 'a'"))


@scenario("replaceWhere, meanwhile an append to another partition")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite(MORE, replaceWhere="p = 'b'", meanwhile=appends("a"))


@scenario("replaceWhere, meanwhile a delete in the same partition")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite(MORE, replaceWhere="p = 'b'", meanwhile=deletes("p = 'b'"))


@scenario("replace the partitions of the data, meanwhile a delete in another one")
def _(t: Table) -> None:
    t.start(*PARTS)
    t.overwrite(MORE, partitionOverwriteMode="dynamic", meanwhile=deletes("p = 'a'"))


@scenario(
    "a table that another writer creates meanwhile",
    "delta-spark reports a conflict; spark_ext reports that the table exists.",
)
def _(t: Table) -> None:
    def create(path: str) -> None:
        import deltalog

        schema = deltalog.schema.StructType.from_json(
            '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
        )
        deltalog.DeltaTable.create(path, schema)

    t.write("select 1L as id", meanwhile=create)


@scenario("a repeated txnVersion that another writer commits meanwhile")
def _(t: Table) -> None:
    def act(path: str) -> None:
        import pyarrow as pa

        import deltalog

        rows = pa.table({"id": pa.array([5], pa.int64()), "p": ["a"]})
        deltalog.DeltaTable.open(path).append(rows, txn=("job", 1))

    t.start(*PARTS)
    t.append(MORE, txnAppId="job", txnVersion=1, meanwhile=act)
