"""Functions that damage checkpoints and their sidecars."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy as copy_of
from typing import Any

from tests.support.doctor.damaged_tables import (
    Damage,
    case,
    checkpointed,
    checkpointed_v2,
    copy,
    delete,
    edit_checkpoint,
    edit_top,
    first_add,
    log,
    overwrite,
    truncate,
    without,
)
from tests.support.doctor.damages.lines import INFO


def without_first(values: list[Any]) -> list[Any]:
    first = next(number for number, value in enumerate(values) if value)
    return [None if number == first else value for number, value in enumerate(values)]


def with_parsed(group: str, column: str, value: Any) -> Callable[[list[Any]], list[Any]]:
    """Change a statistic in stats_parsed of add actions, but not in stats."""

    def change(values: list[Any]) -> list[Any]:
        changed = copy_of(values)
        for each in changed:
            if each is not None:
                each["stats_parsed"][group][column] = value
        return changed

    return change


def with_tag(lines: list[Any]) -> list[Any]:
    """The lines of a V2 checkpoint's top-level file, with tags that record a wrong number of files."""
    changed = copy_of(lines)
    for line in changed:
        if "checkpointMetadata" in line:
            line["checkpointMetadata"]["tags"]["numOfAddFiles"] = "99"
    return changed


CHECKPOINTS: list[Damage] = [
    case("damaged checkpoint", checkpointed, truncate("_delta_log/*.checkpoint.parquet"), "checkpoint-unreadable"),
    case("empty checkpoint", checkpointed, overwrite(f"{4:020d}.checkpoint.parquet", b""), "checkpoint-unreadable"),
    case("checkpoint lacks a file", checkpointed, edit_checkpoint("add", without_first), "checkpoint-file-missing"),
    case(
        "checkpoint with another size",
        checkpointed,
        edit_checkpoint("add", lambda v: [None if x is None else {**x, "size": x["size"] + 1} for x in v]),
        "checkpoint-file-differs",
    ),
    case(
        "checkpoint whose parsed maximum is another",
        checkpointed,
        edit_checkpoint("add", with_parsed("maxValues", "id", 7777)),
        "checkpoint-stats-differ",
    ),
    case(
        "checkpoint whose parsed null count is another",
        checkpointed,
        edit_checkpoint("add", with_parsed("nullCount", "name", 1)),
        "checkpoint-stats-differ",
    ),
    case(
        "sidecar whose parsed minimum is another",
        checkpointed_v2,
        edit_checkpoint("add", with_parsed("minValues", "name", "a"), "_sidecars/*.parquet"),
        "checkpoint-stats-differ",
    ),
    case(
        "checkpoint with another path",
        checkpointed,
        edit_checkpoint("add", lambda v: [None if x is None else {**x, "path": f"x{x['path']}"} for x in v]),
        "checkpoint-file-extra",
        "checkpoint-file-missing",
    ),
    case(
        "checkpoint without protocol",
        checkpointed,
        edit_checkpoint("protocol", lambda v: [None] * len(v)),
        "checkpoint-protocol-missing",
    ),
    case(
        "checkpoint without metaData",
        checkpointed,
        edit_checkpoint("metaData", lambda v: [None] * len(v)),
        "checkpoint-metadata-missing",
    ),
    case(
        "checkpoint of another table",
        checkpointed,
        edit_checkpoint("metaData", lambda v: [None if x is None else {**x, "id": "other"} for x in v]),
        "checkpoint-metadata-differs",
    ),
    case(
        "checkpoint of another protocol",
        checkpointed,
        edit_checkpoint(
            "protocol", lambda v: [None if x is None else {**x, "writerFeatures": ["appendOnly"]} for x in v]
        ),
        "checkpoint-protocol-differs",
    ),
    case(
        "checkpoint after the latest",
        checkpointed,
        delete(f"_delta_log/{4:020d}.json", f"_delta_log/{5:020d}.json", f"_delta_log/{6:020d}.json"),
        "checkpoint-after-latest",
    ),
    case(
        "checkpoint without its commit", checkpointed, delete(f"_delta_log/{4:020d}.json"), "checkpoint-without-commit"
    ),
    case(
        "gap below a checkpoint",
        checkpointed,
        delete(f"_delta_log/{2:020d}.json"),
        "version-gap-below-checkpoint",
        "ict-commit-gone",
    ),
    case("gap after a checkpoint", checkpointed, delete(f"_delta_log/{5:020d}.json"), "version-gap"),
    case(
        "part of a checkpoint",
        checkpointed,
        copy("*.checkpoint.parquet", f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet"),
        "multi-part-checkpoint-incomplete",
    ),
    case(
        "checkpoint by UUID without feature",
        checkpointed,
        copy("*.checkpoint.parquet", f"{4:020d}.checkpoint.12345678-1234-1234-1234-123456789abc.parquet"),
        "uuid-checkpoint-without-feature",
    ),
    case(
        "sidecar missing",
        checkpointed_v2,
        lambda path: sorted(log(path, "_sidecars").iterdir())[0].unlink(),
        "sidecar-missing",
    ),
    case(
        "sidecar damaged",
        checkpointed_v2,
        truncate("_delta_log/_sidecars/*.parquet"),
        "sidecar-size-differs",
        "sidecar-unreadable",
    ),
    case(
        "sidecar elsewhere",
        checkpointed_v2,
        edit_top(
            lambda ls: [{"sidecar": {**x["sidecar"], "path": "../../x.parquet"}} if "sidecar" in x else x for x in ls]
        ),
        "sidecar-path-invalid",
    ),
    case(
        "sidecar of another size",
        checkpointed_v2,
        edit_top(lambda ls: [{"sidecar": {**x["sidecar"], "sizeInBytes": 3}} if "sidecar" in x else x for x in ls]),
        "sidecar-size-differs",
    ),
    case(
        "stray sidecar",
        checkpointed_v2,
        lambda path: (log(path, "_sidecars/x.parquet").write_bytes(b"x"), None)[1],
        "sidecar-unreferenced",
    ),
    case(
        "no checkpointMetadata",
        checkpointed_v2,
        edit_top(without("checkpointMetadata")),
        "checkpoint-metadata-action-missing",
    ),
    case(
        "checkpointMetadata of another version",
        checkpointed_v2,
        edit_top(lambda ls: [{"checkpointMetadata": {"version": 99}} if "checkpointMetadata" in x else x for x in ls]),
        "checkpoint-metadata-version-differs",
    ),
    case("checkpoint of another number of files", checkpointed_v2, edit_top(with_tag), "checkpoint-counts-differ"),
    case(
        "files in sidecars and beside them",
        checkpointed_v2,
        lambda path: edit_top(lambda ls: [*ls, first_add(path)])(path),
        "checkpoint-files-split",
        "checkpoint-file-twice",
        "checkpoint-counts-differ",
    ),
    case(
        "commitInfo in a checkpoint", checkpointed_v2, edit_top(lambda ls: [*ls, INFO]), "checkpoint-holds-provenance"
    ),
]
