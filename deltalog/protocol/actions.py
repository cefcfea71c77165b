"""The types of the actions in a commit. Pure.

Spec: PROTOCOL.md#actions. Fields have the protocol's names in snake case; ``from_json`` and ``to_json`` use the
original names. Unknown fields are kept in ``extra`` and written back.
"""

from __future__ import annotations

import datetime
import decimal
import operator
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

import msgspec
from msgspec import field

from deltalog.errors import InvalidCommitError
from deltalog.protocol.json_values import text_or_none, whole_or_none
from deltalog.protocol.schema import StructType, parsed

Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Int = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Version = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
A = TypeVar("A", bound="Action")


class Action(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True, gc=False):
    """The base class of all actions. Not a user type.

    Actions contain no reference cycles, and reading a long log is three times as fast if the garbage collector does not
    track them (``gc=False``).
    """

    KEY: ClassVar[str]
    # Because of the blank, the name does not collide with any field of the protocol.
    extra: dict[str, Any] = field(default_factory=dict, name=" extra")

    @classmethod
    def from_json(cls: type[A], body: Any) -> A:
        """The action for a decoded JSON body. Raises InvalidCommitError naming the invalid field."""
        try:
            action = msgspec.convert(body, cls)
        except (msgspec.ValidationError, RecursionError) as error:
            raise InvalidCommitError(f"A {cls.KEY} action is not valid: {error}.") from None
        unknown = {key: value for key, value in body.items() if key not in _KNOWN[cls]}
        return msgspec.structs.replace(action, extra=unknown) if unknown else action

    def to_json(self) -> dict[str, Any]:
        """The body as it is written to the log, without absent optional fields."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        body.pop(" extra", None)
        return {**body, **self.extra} if self.extra else body

    def as_read_back(self: A) -> A:
        """The action as a reader of the log would decode it: instances of subclasses of str, int and float become plain
        values.

        Constructors do not check types. Raises InvalidCommitError naming the field that readers would reject.
        """
        try:
            body = msgspec.to_builtins(self, builtin_types=_NOT_IN_JSON, enc_hook=plain)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidCommitError(f"A {self.KEY} action is not valid: {error}.") from None
        extra = body.pop(" extra", None) or {}
        return type(self).from_json({**body, **extra})


# Types that must not be written: msgspec would write their values as strings, and a reader could not recognise the
# original type.
_NOT_IN_JSON = (
    bytes, bytearray, memoryview, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal,
)  # fmt: skip


def plain(value: Any) -> Any:
    """Convert an instance of a subclass of str, int or float, or another library's integer, to the built-in type.
    Raises TypeError."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return operator.index(value)


class Protocol(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#protocol-evolution."""

    KEY = "protocol"
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Format(msgspec.Struct, frozen=True):
    provider: str = "parquet"
    options: dict[str, str] = field(default_factory=dict)


_EMPTY: dict[str, Any] = {"format": {}, "partitionColumns": [], "configuration": {}}


class FrozenDict(dict[str, str]):
    """A mapping from strings to strings that cannot be changed in place. ``dict(mapping)`` makes a mutable copy."""

    def _refuse(self, *arguments: object, **named: object) -> NoReturn:
        raise TypeError("This mapping is part of a snapshot and cannot be changed in place: copy it with dict(...).")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class Metadata(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#change-metadata."""

    KEY = "metaData"
    id: str
    name: str | None = None
    description: str | None = None
    format: Format
    schema_string: str = ""  # absent in some early tables that have no columns
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    created_time: Long | None = None

    def __post_init__(self) -> None:
        # Snapshots share this mapping; do not modify it, because the next property change is based on it.
        if type(self.configuration) is not FrozenDict:
            msgspec.structs.force_setattr(self, "configuration", FrozenDict(self.configuration))

    @classmethod
    def from_json(cls, body: Any) -> Metadata:
        """Like ``Action.from_json``, but fields that some writers omit when empty, or set to null, become empty."""
        if isinstance(body, dict):
            body = {**body, **{key: empty for key, empty in _EMPTY.items() if body.get(key) is None}}
        return super().from_json(body)

    @property
    def schema(self) -> StructType:
        """``schemaString``, parsed. Raises CorruptTableError."""
        return parsed(self.schema_string) if self.schema_string else StructType()

    def with_configuration(self, configuration: Mapping[str, str]) -> Metadata:
        """A copy of the metadata with other properties."""
        return msgspec.structs.replace(self, configuration=dict(configuration))


class DeletionVector(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Spec: PROTOCOL.md#deletion-vector-descriptor-schema."""

    storage_type: Literal["u", "i", "p"]
    path_or_inline_dv: str
    size_in_bytes: Int
    cardinality: Size
    offset: Int | None = None
    max_row_index: Long | None = None

    @property
    def unique_id(self) -> str:
        """A string that distinguishes this vector from other vectors of the same data file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"


class AddFile(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#add-file-and-remove-file. ``path`` is percent-encoded; ``stats`` is a JSON string."""

    KEY = "add"
    path: str
    partition_values: dict[str, str | None]
    size: Size
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None


class RemoveFile(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#add-file-and-remove-file. ``deletion_timestamp`` is in ms."""

    KEY = "remove"
    path: str
    deletion_timestamp: Long | None = None
    data_change: bool = field(default=True)
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "dataChange": self.data_change}


class AddCDCFile(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#add-cdc-file."""

    KEY = "cdc"
    path: str
    partition_values: dict[str, str | None]
    size: Size
    data_change: bool
    tags: dict[str, str | None] | None = None


class Sidecar(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#sidecar-file-information. Occurs only in V2 checkpoints."""

    KEY = "sidecar"
    path: str
    size_in_bytes: Size
    modification_time: Long
    tags: dict[str, str | None] | None = None


class SetTransaction(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#transaction-identifiers."""

    KEY = "txn"
    app_id: str
    version: Version
    last_updated: Long | None = None


class DomainMetadata(Action, frozen=True, kw_only=True):
    """Spec: PROTOCOL.md#domain-metadata."""

    KEY = "domainMetadata"
    domain: str
    configuration: str
    removed: bool

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "removed": self.removed}


class UnknownAction(msgspec.Struct, frozen=True):
    """An action of a type that this version of deltalog does not know; it is kept unchanged."""

    line: dict[str, Any]


class CommitInfo(msgspec.Struct, frozen=True):
    """Provenance information: any JSON object. The properties return the fields that deltalog uses.

    Spec: PROTOCOL.md#commit-provenance-information.
    """

    body: dict[str, Any]

    @property
    def in_commit_timestamp_ms(self) -> int | None:
        """``inCommitTimestamp``, or None when it is absent or not an integer (ms since 1970) of at least 0."""
        value = whole_or_none(self.body.get("inCommitTimestamp"))
        return value if value is not None and 0 <= value < 2**63 else None

    @property
    def txn_id(self) -> str | None:
        return text_or_none(self.body.get("txnId"))

    @property
    def operation(self) -> str | None:
        return text_or_none(self.body.get("operation"))


_KNOWN: dict[type[Action], frozenset[str]] = {
    cls: frozenset(cls.__struct_encode_fields__) - {" extra"}
    for cls in (Protocol, Metadata, AddFile, RemoveFile, AddCDCFile, Sidecar, SetTransaction, DomainMetadata)
}

# msgspec builds the decoder of a class at its first use. If threads do so at the same moment, the process can crash.
for _cls in _KNOWN:
    msgspec.json.Decoder(_cls)
