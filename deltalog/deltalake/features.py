"""TableFeatures: the table features that ``alter.add_feature`` accepts."""

from __future__ import annotations

import enum


class TableFeatures(enum.Enum):
    """A table feature, under the name that deltalake gives it."""

    AppendOnly = "AppendOnly"
    ChangeDataFeed = "ChangeDataFeed"
    CheckConstraints = "CheckConstraints"
    ColumnMapping = "ColumnMapping"
    DeletionVectors = "DeletionVectors"
    DomainMetadata = "DomainMetadata"
    GeneratedColumns = "GeneratedColumns"
    IcebergCompatV1 = "IcebergCompatV1"
    IdentityColumns = "IdentityColumns"
    Invariants = "Invariants"
    RowTracking = "RowTracking"
    TimestampNanos = "TimestampNanos"
    TimestampWithoutTimezone = "TimestampWithoutTimezone"
    V2Checkpoint = "V2Checkpoint"
    VariantType = "VariantType"
    VariantTypePreview = "VariantTypePreview"

    @property
    def protocol_name(self) -> str:
        """The name in the protocol."""
        special = {
            "TimestampWithoutTimezone": "timestampNtz",
            "VariantTypePreview": "variantType-preview",
            "V2Checkpoint": "v2Checkpoint",
        }
        return special.get(self.name, self.name[0].lower() + self.name[1:])
