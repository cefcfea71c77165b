"""Functions that damage commits: the names of commit files, their lines, and the actions in them."""

from __future__ import annotations

import json
import os

from tests.support.doctor.damaged_tables import (
    Damage,
    append_commit,
    both,
    case,
    commit,
    copy,
    delete,
    edit,
    edit_action,
    first_add,
    overwrite,
    plain,
    timed,
    truncate,
    without,
)
from tests.support.doctor.damages.lines import INFO, NAME, metadata_at, protocol

COMMITS: list[Damage] = [
    case("unknown field", plain, edit_action(1, "add", lambda add: add.update(future=1)), "field-unknown"),
    case(
        "file times that go back",
        plain,
        lambda path: os.utime(commit(path, 2), (1, 1)),
        "file-time-not-increasing",
    ),
    case("gap", plain, delete(f"_delta_log/{NAME}.json"), "version-gap"),
    case("first commit missing", plain, delete(f"_delta_log/{0:020d}.json"), "log-start-missing"),
    case("no log", plain, delete("_delta_log/*"), "log-missing"),
    case("torn commit", plain, truncate(f"_delta_log/{3:020d}.json", 0.8), "commit-truncated"),
    case("no JSON", plain, overwrite(f"{NAME}.json", b'{"add":\n{"commitInfo":{}}\n'), "commit-invalid-json"),
    case("no text", plain, overwrite(f"{NAME}.json", b'{"commitInfo":{"a":"\xff\xfe"}}\n'), "commit-not-text"),
    case("white space", plain, overwrite(f"{NAME}.json", b" \n\n"), "commit-empty"),
    case("a list", plain, overwrite(f"{NAME}.json", b'["add"]\n'), "commit-line-not-an-action"),
    case(
        "byte order mark",
        plain,
        lambda path: (commit(path, 1).write_bytes(b"\xef\xbb\xbf" + commit(path, 1).read_bytes()), None)[1],
        "commit-byte-order-mark",
    ),
    case(
        "two actions on a line",
        plain,
        edit(1, lambda lines: [{k: v for line in lines for k, v in line.items()}]),
        "commit-line-not-an-action",
    ),
    case(
        "spread over lines",
        plain,
        lambda path: (commit(path, 1).write_text(json.dumps(INFO, indent=2)), None)[1],
        "commit-json-multiline",
    ),
    case("key twice", plain, overwrite(f"{NAME}.json", b'{"commitInfo":{"a":1,"a":2}}\n'), "commit-duplicate-key"),
    case("unknown action", plain, append_commit(INFO, {"future": {}}), "action-unknown"),
    case("add without path", plain, edit_action(1, "add", lambda add: add.pop("path")), "action-invalid"),
    case("size as text", plain, edit_action(1, "add", lambda add: add.update(size="9")), "action-invalid"),
    case("two protocols", plain, append_commit(INFO, protocol(), protocol()), "commit-protocol-twice"),
    case(
        "two metaData",
        plain,
        lambda path: append_commit(INFO, metadata_at(path), metadata_at(path))(path),
        "commit-metadata-twice",
    ),
    case(
        "two transactions",
        plain,
        append_commit(INFO, {"txn": {"appId": "a", "version": 1}}, {"txn": {"appId": "a", "version": 2}}),
        "commit-txn-twice",
    ),
    case(
        "two domains",
        plain,
        append_commit(INFO, *({"domainMetadata": {"domain": "d", "configuration": c, "removed": False}} for c in "xy")),
        "commit-domain-twice",
        "domain-without-feature",
    ),
    case("two commitInfo", plain, append_commit(INFO, INFO), "commit-info-twice"),
    case(
        "sidecar in a commit",
        plain,
        append_commit(INFO, {"sidecar": {"path": "a.parquet", "sizeInBytes": 1, "modificationTime": 1}}),
        "checkpoint-action-in-commit",
    ),
    case("no protocol", plain, edit(0, without("protocol")), "protocol-missing"),
    case("no metaData", plain, edit(0, without("metaData")), "metadata-missing"),
    case("short name", plain, copy(f"{NAME}.json", "99.json"), "commit-name-malformed"),
    case("stray file", plain, overwrite("notes.txt", b"x"), "log-file-unknown"),
    case(
        "application goes back",
        plain,
        both(
            append_commit(INFO, {"txn": {"appId": "a", "version": 5}}),
            append_commit(INFO, {"txn": {"appId": "a", "version": 3}}),
        ),
        "txn-version-decreases",
    ),
    case(
        "blind append that removes",
        plain,
        lambda path: append_commit(
            {"commitInfo": {"isBlindAppend": True}},
            {"remove": {"path": first_add(path)["add"]["path"], "dataChange": True, "deletionTimestamp": 1}},
        )(path),
        "commit-info-contradicts",
    ),
    case(
        "protocol lowered",
        timed,
        append_commit({"commitInfo": {"operation": "WRITE"}}, protocol()),
        "protocol-lowered",
    ),
]
