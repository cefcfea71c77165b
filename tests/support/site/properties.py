"""Writes docs/table-properties.md from the properties that deltalog knows; the meanings are here.

``python -m tests.support.site.properties`` writes the page.
"""

from __future__ import annotations

from pathlib import Path

from deltalog.protocol import properties
from deltalog.protocol.properties import KNOWN

PAGE = Path(__file__).resolve().parents[3] / "docs" / "table-properties.md"
HEAD = """# Table properties

<!-- written by python -m tests.support.site.properties -->

A table property is a pair of texts in the table's metadata. It is set when the table is created, or later, in a commit
of its own:

```python
import pyarrow as pa
from deltalog import DeltaTable

schema = pa.schema([("id", pa.int64())])
table = DeltaTable.create("events", schema, properties={"delta.appendOnly": "true"})
table.set_properties({"delta.appendOnly": "false", "owner": "platform"})
table.unset_properties(["owner"])
print(table.snapshot().metadata.configuration)
```

Values are text. Durations are written `interval 7 days`, sizes as a number of bytes or `128mb`. A key with the prefix
`delta.` that is not on this page is refused with the nearest known key; a key without this prefix is kept and never
interpreted.
"""
MEANINGS = {
    "delta.enableInCommitTimestamps": "Each commit records its own time, which time travel uses: "
    "[in-commit timestamps](in-commit-timestamps.md#turning-them-on).",
    "delta.appendOnly": "Rows can be added, and neither changed nor deleted.",
    "delta.checkpointInterval": "A commit whose version is a multiple of this number writes a "
    "[checkpoint](log-files.md#checkpoints).",
    "delta.dataSkippingStatsColumns": "The names of the columns with statistics, separated by commas.",
    "delta.deletedFileRetentionDuration": "[Vacuum](maintenance.md#files-that-are-no-longer-needed) deletes a removed "
    "file after this time.",
    "delta.dataSkippingNumIndexedCols": "The number of leading columns with statistics; -1 for all.",
    "delta.checkpoint.writeStatsAsJson": "Checkpoints have the statistics of each file as text.",
    "delta.checkpoint.writeStatsAsStruct": "Checkpoints have the statistics of each file as columns.",
    "delta.enableChangeDataFeed": "Commits record the rows that they change: [changes](reading.md#changes).",
    "delta.enableRowTracking": "Each row has an id and the version of its last change.",
    "delta.rowTrackingSuspended": "New rows get no ids while row tracking is being turned on or dropped.",
    "delta.enableDeletionVectors": "Deleted rows are marked in a small file, and their data file is not rewritten.",
    "delta.isolationLevel": "`Serializable` or `WriteSerializable`: which concurrent changes "
    "[conflict](commit-protocol.md#isolation-levels).",
    "delta.enableTypeWidening": "Columns can be widened, for example from `int` to `long`, without rewriting files.",
    "delta.enableVariantShredding": "Frequent fields of variants are stored as columns of their own.",
    "delta.columnMapping.mode": "`none`, `name` or `id`: whether columns can be renamed and dropped without rewriting "
    "files.",
    "delta.checkpointPolicy": "`classic`, or `v2`: checkpoints with sidecar files.",
    "delta.logRetentionDuration": "Log files are [cleaned up](log-files.md#clean-up) after this time.",
    "delta.enableExpiredLogCleanup": "Log files are cleaned up after checkpoints.",
    "delta.setTransactionRetentionDuration": "`txn` versions older than this are forgotten. Without it, never.",
    "delta.requireCheckpointProtectionBeforeVersion": "Log files before this version are only cleaned up together.",
    "delta.randomizeFilePrefixes": "New data files are in directories with random names.",
    "delta.randomPrefixLength": "The length of these names.",
    "delta.targetFileSize": "The size of files that [optimize](maintenance.md#small-files-and-deleted-rows) and "
    "writes aim for.",
}
_UNITS = ((86_400_000, "day"), (3_600_000, "hour"))


def text() -> str:
    parts = [HEAD, "## Interpreted by deltalog\n\n| Property | Default | Meaning |\n| --- | --- | --- |\n"]
    columns = properties.DATA_SKIPPING_STATS_COLUMNS_KEY
    parts += [f"| `{key}` | {_default(key)} | {MEANINGS[key]} |\n" for key in sorted((*KNOWN, columns))]
    parts.append("\n## Kept for other engines\n\ndeltalog accepts these properties and does not use them.\n\n")
    parts += [f"- `{key}`\n" for key in sorted(properties._PASSED_ON - {columns})]
    parts.append("\n## Not set by callers\n\n| Property | Instead |\n| --- | --- |\n")
    refused = {
        **properties._KEPT_BY_THE_WRITER,
        **{f"{key}…" if key.endswith((".", "Compat")) else key: why for key, why in properties._REFUSED.items()},
    }
    parts += [f"| `{key}` | {_sentence(why)} |\n" for key, why in refused.items()]
    parts.append(f"| `{properties.CATALOG_ID_KEY}` | Written when a catalog takes over a table. |\n")
    parts.append(f"| `{properties.UNITY_TABLE_ID_KEY}` | Written for the tables of a Unity Catalog. |\n")
    parts.append(f"\n`{properties.FEATURE_PREFIX}<name>` = `supported` adds a table feature, as ")
    parts.append("[`add_feature`](reference/deltalog.DeltaTable.md) does.\n")
    return "".join(parts)


def _default(key: str) -> str:
    value = KNOWN[key].default if key in KNOWN else None
    if value is None:
        return "none"
    if key.endswith("Duration") and isinstance(value, int):
        size, unit = next(each for each in _UNITS if value % each[0] == 0)
        return f"`interval {value // size} {unit}s`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _sentence(why: str) -> str:
    return f"{why[0].upper()}{why[1:].rstrip('.')}.".replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
