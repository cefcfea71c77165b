"""The origin of rows: the table and the version from which they were read. Pure.

A write computed from a table's rows is correct only if those rows have not changed since. A scan therefore records the
origin of its rows as text, in the schema metadata of its Arrow data and in a marker in a Spark DataFrame. A transaction
that writes these rows to the same table begins at the version from which they were read, and is checked for conflicts
with the commits that other writers have made since then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from deltalog.errors import CallError, DeltaLogError
from deltalog.expressions.tree import Predicate
from deltalog.lazy_names import lazy_modules
from deltalog.protocol.schema import StructType

if TYPE_CHECKING:
    from deltalog.expressions import bind as binding
    from deltalog.expressions import bound, sql, sql_text
else:
    lazy_modules(
        __name__,
        "deltalog.expressions.bound",
        "deltalog.expressions.sql",
        "deltalog.expressions.sql_text",
        binding="deltalog.expressions.bind",
    )

# The ``origin`` of a scan, alone or with a condition that restricts the rows that count as read.
Read = str | tuple[str, "Predicate | str | None"]

# The key of the origin in the schema metadata of a scan's batches. deltalog's writers do not store it.
ORIGIN_KEY = b"deltalog.read"
# With more values, the text of a condition could take megabytes in the metadata of every batch, and seconds to parse.
_MAX_VALUES_IN_TEXT = 1000


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The table and the version from which rows were read.

    ``table``: the table id, from the table's metadata. ``url``: see ``storage.base.real_url``. ``where``: the condition
    of the scan as SQL text; None for all rows. ``branch``: the id of the multi-table transaction to which ``version``
    belongs, if any; ``base_version``: the version of the table on which that transaction is based. ``txn_id``: the
    txnId of the commit of ``version``, if known; it is compared because after the table was rolled back to a copy,
    another commit can have the same version.
    """

    table: str
    url: str
    version: int
    where: str | None = None
    branch: str | None = None
    base_version: int | None = None
    txn_id: str | None = None

    def as_text(self) -> str:
        return msgspec.json.encode(self).decode()

    def is_of(self, table_id: str, url: str) -> bool:
        """Whether the rows were read from this table. A copy at another location is a different table."""
        return (self.table, self.url) == (table_id, url)

    def version_for(self, branch: str | None, base_version: int | None) -> int:
        """The version that was read, expressed as a version number of the writer's branch or log. ``branch`` and
        ``base_version``: the branch of the writer's multi-table transaction and its base version; None outside such a
        transaction."""
        if self.branch == branch:
            return self.version
        known = (self.version if self.branch is None else self.base_version, base_version if branch else None)
        return min(version for version in known if version is not None)


def text_of(where: bound.Bound | None, schema: StructType) -> str | None:
    """A bound condition as SQL text; None if SQL cannot express it or if it has more than _MAX_VALUES_IN_TEXT values.
    All rows then count as read."""
    if where is None or bound.number_of_values(where) > _MAX_VALUES_IN_TEXT:
        return None
    try:
        expression = where.expression
        text = sql_text.to_sql(expression)
        if sql_text.is_plain(expression):
            return text
        return text if binding.bind(sql.parse(text), schema) == where else None
    except (DeltaLogError, RecursionError):
        return None


def tagged(schema: pa.Schema, origin: str | None) -> pa.Schema:
    """The schema with the origin added to its metadata."""
    return schema if origin is None else schema.with_metadata({**(schema.metadata or {}), ORIGIN_KEY: origin.encode()})


def origin_in(data: Any) -> str | None:
    """The origin of a Scan or of Arrow data (a Table, RecordBatch or RecordBatchReader); None if there is none."""
    if isinstance(origin := getattr(data, "origin", None), str):
        return origin
    schema = data.schema if isinstance(data, (pa.Table, pa.RecordBatch, pa.RecordBatchReader)) else None
    encoded = schema.metadata.get(ORIGIN_KEY) if schema is not None and schema.metadata else None
    return None if encoded is None else encoded.decode(errors="replace")


def decoded(reads: Iterable[Read]) -> list[tuple[Origin, Predicate | str | None]]:
    """Decode each origin, and return it with the condition that its rows satisfy. Raises CallError for text that is not
    an origin."""
    pairs = [(each, None) if isinstance(each, str) else each for each in reads]
    try:
        origins = [msgspec.json.decode(text, type=Origin) for text, _ in pairs]
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise CallError(
            f"The version that these rows were read from cannot be decoded ({error}). Pass a value of Scan.origin, or "
            f"remove the key {ORIGIN_KEY.decode()} from the schema metadata."
        ) from None
    conditions = [where for _, where in pairs]
    return [(each, each.where if where is None else where) for each, where in zip(origins, conditions, strict=True)]


# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
msgspec.json.Decoder(Origin)
