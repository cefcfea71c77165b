"""Random damages to commits: bytes, lines, actions, in-commit timestamps."""

from __future__ import annotations

import json
import os
import shutil

from tests.support.doctor.random_damages.kinds import kind
from tests.support.doctor.random_damages.log import Log, Place, swap

_YEAR_2100_MS = 4_102_444_800_000


# ------------------------------------------------------------------------------------------------------- bytes


@kind()
def a_commit_cut_in_its_last_line(log: Log) -> tuple[str, ...]:
    file = log.commit(log.pick(log.versions))
    data = file.read_bytes().rstrip(b"\n")
    start = data.rfind(b"\n") + 1
    file.write_bytes(data[: log.chance.randrange(start + 1, len(data))])
    return ("commit-truncated",)


@kind()
def a_line_of_a_commit_with_bytes_of_another(log: Log) -> tuple[str, ...]:
    file = log.commit(log.pick(log.versions))
    lines = file.read_bytes().splitlines(keepends=True)
    at = log.chance.randrange(len(lines))
    middle = log.chance.randrange(1, len(lines[at]) - 1)
    lines[at] = lines[at][middle:-1] + lines[at][:middle] + b"\n"
    file.write_bytes(b"".join(lines))
    return ("commit-invalid-json",)


@kind()
def a_commit_of_no_bytes(log: Log) -> tuple[str, ...]:
    log.commit(log.pick(log.versions)).write_bytes(log.chance.choice((b"", b"\n", b" \n\n")))
    return ("commit-empty",)


@kind()
def a_commit_that_is_no_text(log: Log) -> tuple[str, ...]:
    file = log.commit(log.pick(log.versions))
    data = file.read_bytes()
    at = data.index(b'":"') + 3
    file.write_bytes(data[:at] + log.chance.choice((b"\xff", b"\xc3\x28")) + data[at:])
    return ("commit-not-text",)


@kind()
def a_byte_order_mark(log: Log) -> tuple[str, ...]:
    file = log.commit(log.pick(log.versions))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    return ("commit-byte-order-mark",)


@kind()
def an_action_on_several_lines(log: Log) -> tuple[str, ...]:
    version = log.pick(log.versions)
    log.commit(version).write_text("".join(json.dumps(line, indent=1) + "\n" for line in log.lines(version)))
    return ("commit-json-multiline",)


@kind()
def a_doubled_key(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    lines = log.commit(place.version).read_text(encoding="utf-8").splitlines()
    lines[place.line] = lines[place.line].replace('"size":', '"size":7,"size":', 1)
    log.commit(place.version).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return ("commit-duplicate-key",)


# ----------------------------------------------------------------------------------------------------- versions


@kind()
def a_commit_that_is_a_pipe(log: Log) -> tuple[str, ...]:
    file = log.commit(log.pick(log.versions))
    file.unlink()
    os.mkfifo(file)
    return ("commit-unreadable",)


@kind(avoids=["v2"])
def a_directory_that_leads_to_itself(log: Log) -> tuple[str, ...]:
    link = log.folder / log.chance.choice(("_sidecars", "_staged_commits"))
    link.symlink_to(link.name)
    return ("log-unreadable",)


@kind(avoids=["checkpointed"])
def a_lost_commit(log: Log) -> tuple[str, ...]:
    log.without_derived()
    log.commit(log.pick(log.versions[1:-1])).unlink()
    return "version-gap", "version-unreachable"


@kind("checkpointed")
def a_lost_commit_below_a_checkpoint(log: Log) -> tuple[str, ...]:
    last = max(log.checkpoints(), default=0)
    log.commit(log.pick(range(1, last))).unlink()
    return ("version-gap-below-checkpoint",)


@kind("checkpointed")
def lost_commits_before_a_checkpoint(log: Log) -> tuple[str, ...]:
    first = log.pick(log.checkpoints())
    for version in range(first):
        log.commit(version).unlink()
    return ("version-unreachable", "log-begins-later") if first else ()


@kind(avoids=["checkpointed"])
def a_lost_first_commit(log: Log) -> tuple[str, ...]:
    log.without_derived()
    log.commit(0).unlink()
    return ("log-start-missing",)


@kind("timed")
def a_doubled_commit(log: Log) -> tuple[str, ...]:
    shutil.copy(log.commit(log.pick(log.versions)), log.commit(log.last + 1))
    return ("ict-not-increasing",)


@kind("timed")
def two_swapped_commits(log: Log) -> tuple[str, ...]:
    version = log.pick(log.versions[1:-1])
    swap(log.commit(version), log.commit(version + 1))
    return ("ict-not-increasing",)


# -------------------------------------------------------------------------------------------------------- actions


def _doubled(log: Log, name: str) -> None:
    place = log.pick(log.of_kind(name))
    lines = log.lines(place.version)
    log.write(place.version, [*lines, lines[place.line]])


@kind()
def a_doubled_add(log: Log) -> tuple[str, ...]:
    _doubled(log, "add")
    return ("file-added-twice",)


@kind()
def a_doubled_remove(log: Log) -> tuple[str, ...]:
    _doubled(log, "remove")
    return ("file-removed-twice",)


@kind()
def a_doubled_protocol(log: Log) -> tuple[str, ...]:
    _doubled(log, "protocol")
    return ("commit-protocol-twice",)


@kind()
def doubled_metadata(log: Log) -> tuple[str, ...]:
    _doubled(log, "metaData")
    return ("commit-metadata-twice",)


@kind()
def a_doubled_commit_info(log: Log) -> tuple[str, ...]:
    _doubled(log, "commitInfo")
    return ("commit-info-twice",)


@kind()
def doubled_domain_metadata(log: Log) -> tuple[str, ...]:
    _doubled(log, "domainMetadata")
    return ("commit-domain-twice",)


@kind()
def a_doubled_transaction(log: Log) -> tuple[str, ...]:
    txn = {"txn": {"appId": "job", "version": log.chance.randrange(9)}}
    log.append(txn, txn)
    return ("commit-txn-twice",)


@kind()
def a_transaction_that_goes_back(log: Log) -> tuple[str, ...]:
    log.append({"txn": {"appId": "x", "version": 9}})
    log.versions.append(log.last + 1)
    log.take(log.last)
    log.append({"txn": {"appId": "x", "version": log.chance.randrange(9)}})
    return ("txn-version-decreases",)


@kind()
def an_add_of_a_file_that_is_removed(log: Log) -> tuple[str, ...]:
    add = log.pick(log.live()).body
    remove = {name: add[name] for name in ("path", "dataChange", "deletionVector") if name in add}
    log.append({"add": add}, {"remove": {**remove, "deletionTimestamp": 1}})
    return ("commit-add-and-remove",)


@kind()
def a_remove_of_another_file(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("remove"))
    log.change(place, "remove", {**place.body, "path": f"other-{place.body['path']}"})
    return ("remove-not-live",)


@kind()
def a_lost_add_of_a_file_that_is_removed_later(log: Log) -> tuple[str, ...]:
    removed = {(each.body["path"], str(each.body.get("deletionVector"))) for each in log.of_kind("remove")}
    readded = {each.body["path"] for each in log.of_kind("add") if each.body.get("deletionVector")}
    place = log.pick(
        each
        for each in log.of_kind("add")
        if (each.body["path"], str(each.body.get("deletionVector"))) in removed and each.body["path"] not in readded
    )
    again = [each for each in log.of_kind("add") if each.body["path"] == place.body["path"]]
    log.pick([None] * (len(again) == 1))
    lines = log.lines(place.version)
    log.write(place.version, lines[: place.line] + lines[place.line + 1 :])
    return ("remove-not-live",)


@kind()
def a_remove_without_its_time(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("remove"))
    log.change(place, "remove", {name: value for name, value in place.body.items() if name != "deletionTimestamp"})
    return ("remove-time-missing",)


@kind()
def a_remove_without_its_size(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.of_kind("remove") if each.body.get("extendedFileMetadata"))
    name = log.chance.choice(("size", "partitionValues"))
    log.change(place, "remove", {key: value for key, value in place.body.items() if key != name})
    return ("remove-metadata-incomplete",)


@kind()
def an_add_without_a_field(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    name = log.chance.choice(("path", "size", "partitionValues", "modificationTime", "dataChange"))
    log.change(place, "add", {key: value for key, value in place.body.items() if key != name})
    return ("action-invalid",)


@kind()
def a_field_of_another_type(log: Log) -> tuple[str, ...]:
    place = log.pick(log.of_kind("add"))
    name, value = log.chance.choice((("size", "1"), ("size", -1), ("path", 5), ("partitionValues", []), ("tags", 3)))
    log.change(place, "add", {**place.body, name: value})
    return ("action-invalid",)


@kind()
def two_actions_on_a_line(log: Log) -> tuple[str, ...]:
    place = log.pick(each for each in log.of_kind("add"))
    lines = log.lines(place.version)
    lines[place.line] = {**lines[place.line], **log.chance.choice(({"txn": {"appId": "a", "version": 1}}, lines[0]))}
    log.write(place.version, lines)
    return ("commit-line-not-an-action",)


@kind()
def a_line_that_is_no_action(log: Log) -> tuple[str, ...]:
    version = log.pick(log.versions)
    with log.commit(version).open("a") as file:
        file.write(log.chance.choice(("[1]\n", "5\n", '"add"\n', "{}\n")))
    return ("commit-line-not-an-action",)


@kind()
def an_unknown_action(log: Log) -> tuple[str, ...]:
    version = log.pick(log.versions)
    log.write(version, [*log.lines(version), {"novelty": {"a": 1}}])
    return ("action-unknown",)


@kind()
def an_unknown_field(log: Log) -> tuple[str, ...]:
    name = log.pick(("add", "remove"))
    place = log.pick(log.of_kind(name))
    log.change(place, name, {**place.body, "novelty": 1})
    return ("field-unknown",)


@kind()
def a_sidecar_in_a_commit(log: Log) -> tuple[str, ...]:
    version = log.pick(log.versions)
    sidecar = {"path": "x.parquet", "sizeInBytes": 1, "modificationTime": 1}
    log.write(version, [*log.lines(version), {"sidecar": sidecar}])
    return ("checkpoint-action-in-commit",)


@kind(avoids=["tracked"])
def a_new_file_without_data_change(log: Log) -> tuple[str, ...]:
    body = log.pick(log.recent()).body
    log.append({"add": {**body, "path": f"new-{log.chance.random()}.parquet", "dataChange": False}})
    return "data-change-contradicts", "data-file-missing"


@kind()
def a_removal_that_is_no_blind_append(log: Log) -> tuple[str, ...]:
    version = log.pick(
        each for each in log.versions if any(remove.body["dataChange"] for remove in log.of_kind("remove", each))
    )
    lines = log.lines(version)
    next(line for line in lines if "commitInfo" in line)["commitInfo"]["isBlindAppend"] = True
    log.write(version, lines)
    return ("commit-info-contradicts",)


# ------------------------------------------------------------------------------------------- in-commit timestamps


def _with_ict(log: Log, since: int = 0) -> int:
    return log.pick(version for version in log.versions if "inCommitTimestamp" in log.info(version) and version > since)


def _change_info(log: Log, version: int, **fields: object) -> None:
    lines = log.lines(version)
    info = next(line for line in lines if "commitInfo" in line)["commitInfo"]
    for name, value in fields.items():
        info[name] = value
        if value is None:
            del info[name]
    log.write(version, lines)


@kind("timed")
def a_timestamp_of_an_earlier_commit(log: Log) -> tuple[str, ...]:
    version = _with_ict(log)
    earlier = log.info(log.pick(range(version)))["inCommitTimestamp"]
    _change_info(log, version, inCommitTimestamp=earlier - log.chance.randrange(1000))
    return ("ict-not-increasing",)


@kind("timed")
def a_lost_timestamp(log: Log) -> tuple[str, ...]:
    _change_info(log, _with_ict(log, -1), inCommitTimestamp=None)
    return ("ict-missing",)


@kind("timed")
def a_timestamp_that_is_none(log: Log) -> tuple[str, ...]:
    wrong = log.chance.choice(("1700000000000", -5, 1.5, True, 2**63, [1]))
    _change_info(log, _with_ict(log, -1), inCommitTimestamp=wrong)
    return ("ict-invalid",)


@kind("timed")
def a_timestamp_in_the_future(log: Log) -> tuple[str, ...]:
    _change_info(log, _with_ict(log), inCommitTimestamp=_YEAR_2100_MS + log.chance.randrange(10**9))
    return "ict-in-future", "ict-drift"


@kind("timed")
def the_largest_timestamp(log: Log) -> tuple[str, ...]:
    _change_info(log, _with_ict(log), inCommitTimestamp=2**63 - 1)
    return ("ict-at-largest",)


@kind("timed")
def a_lost_commit_info(log: Log) -> tuple[str, ...]:
    version = log.pick(each for each in log.versions if len(log.lines(each)) > 1)
    log.write(version, [line for line in log.lines(version) if "commitInfo" not in line])
    return ("commit-info-missing",)


@kind("timed")
def a_commit_info_that_is_not_first(log: Log) -> tuple[str, ...]:
    version = log.pick(each for each in log.versions if len(log.lines(each)) > 1)
    first, *rest = log.lines(version)
    log.write(version, [*rest, first])
    return ("commit-info-not-first",)


@kind("timed_late")
def half_an_enablement_pair(log: Log) -> tuple[str, ...]:
    place = _pair(log)
    configuration = dict(place.body["configuration"])
    del configuration[f"delta.inCommitTimestampEnablement{log.chance.choice(('Version', 'Timestamp'))}"]
    log.change(place, "metaData", {**place.body, "configuration": configuration})
    return ("ict-half-enablement-pair",)


def _pair(log: Log) -> Place:
    place = log.metadata()
    log.pick([None] * ("delta.inCommitTimestampEnablementVersion" in place.body["configuration"]))
    return place


def _change_pair(log: Log, end: str, change: int) -> None:
    place, key = _pair(log), f"delta.inCommitTimestampEnablement{end}"
    configuration = dict(place.body["configuration"])
    configuration[key] = str(int(configuration[key]) + change)
    log.change(place, "metaData", {**place.body, "configuration": configuration})


@kind("timed_late")
def an_enablement_version_of_another_commit(log: Log) -> tuple[str, ...]:
    _change_pair(log, "Version", -1)
    return ("ict-enablement-version-wrong",)


@kind("timed_late")
def an_enablement_version_after_the_latest(log: Log) -> tuple[str, ...]:
    _change_pair(log, "Version", log.chance.randrange(50, 99))
    return ("ict-enablement-after-latest",)


@kind("timed_late")
def an_enablement_timestamp_of_another_commit(log: Log) -> tuple[str, ...]:
    _change_pair(log, "Timestamp", log.chance.choice((-1, 1, 1000)))
    return ("ict-enablement-timestamp-wrong",)


@kind("timed_late")
def no_enablement_pair(log: Log) -> tuple[str, ...]:
    place = _pair(log)
    configuration = {key: text for key, text in place.body["configuration"].items() if "Enablement" not in key}
    log.change(place, "metaData", {**place.body, "configuration": configuration})
    return ("ict-enablement-missing",)
