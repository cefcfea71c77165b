"""Random damages to version checksums and log compaction files, and files in the log that do not belong there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.doctor.random_damages.kinds import kind
from tests.support.doctor.random_damages.log import Line, Log

_UUID = "12345678-1234-1234-1234-123456789abc"


# ------------------------------------------------------------------------------------------- version checksums


def _crc(log: Log, key: str = "numFiles") -> int:
    """A version whose checksum has a field."""
    return log.pick(version for version in log.crcs() if key in json.loads(log.crc(version).read_text()))


@kind()
def a_checksum_of_other_bytes(log: Log) -> tuple[str, ...]:
    file = log.crc(log.pick(log.crcs()))
    file.write_bytes(log.chance.choice((b"", b"{", b"[]", b"\xff\xfe", file.read_bytes()[:-5])))
    return ("crc-unreadable",)


@kind()
def a_checksum_of_more_files(log: Log) -> tuple[str, ...]:
    more = log.chance.randrange(1, 99)
    log.change_crc(_crc(log), lambda crc: crc.update(numFiles=crc["numFiles"] + more))
    return ("crc-files-differ",)


@kind()
def a_checksum_of_other_bytes_in_total(log: Log) -> tuple[str, ...]:
    log.change_crc(_crc(log), lambda crc: crc.update(tableSizeBytes=crc["tableSizeBytes"] + 1))
    return ("crc-size-differs",)


@kind()
def a_checksum_with_a_wrong_count(log: Log) -> tuple[str, ...]:
    name = log.chance.choice(("numMetadata", "numProtocol"))
    log.change_crc(_crc(log), lambda crc: crc.update({name: log.chance.randrange(2, 9)}))
    return ("crc-numbers-wrong",)


@kind()
def a_checksum_without_a_field(log: Log) -> tuple[str, ...]:
    name = log.chance.choice(("tableSizeBytes", "numFiles", "metadata", "protocol", "numMetadata"))
    log.change_crc(_crc(log), lambda crc: crc.pop(name))
    return ("crc-field-missing",)


@kind()
def a_checksum_of_another_protocol(log: Log) -> tuple[str, ...]:
    log.change_crc(_crc(log, "protocol"), lambda crc: crc["protocol"].update(minWriterVersion=6))
    return ("crc-protocol-differs",)


@kind()
def a_checksum_of_other_metadata(log: Log) -> tuple[str, ...]:
    log.change_crc(_crc(log, "metadata"), lambda crc: crc["metadata"].update(id="other", name="other"))
    return ("crc-metadata-differs",)


@kind()
def a_checksum_of_more_transactions(log: Log) -> tuple[str, ...]:
    more = [{"appId": "nobody", "version": log.chance.randrange(9)}]
    log.change_crc(_crc(log), lambda crc: crc.update(setTransactions=[*(crc.get("setTransactions") or ()), *more]))
    return ("crc-transactions-differ",)


@kind()
def a_checksum_of_more_domains(log: Log) -> tuple[str, ...]:
    more = [{"domain": "of.nobody", "configuration": "", "removed": False}]
    log.change_crc(_crc(log), lambda crc: crc.update(domainMetadata=[*(crc.get("domainMetadata") or ()), *more]))
    return ("crc-domains-differ",)


@kind()
def a_checksum_of_other_bins(log: Log) -> tuple[str, ...]:
    def change(crc: Line) -> None:
        counts = crc["fileSizeHistogram"]["fileCounts"]
        counts[log.chance.randrange(len(counts))] += 1

    log.change_crc(_crc(log, "fileSizeHistogram"), change)
    return ("crc-histogram-differs",)


@kind("vectors")
def a_checksum_of_other_deletions(log: Log) -> tuple[str, ...]:
    name = log.chance.choice(("numDeletedRecordsOpt", "numDeletionVectorsOpt"))
    log.change_crc(_crc(log, name), lambda crc: crc.update({name: crc[name] + 1}))
    return ("crc-deletions-differ",)


@kind("timed", avoids=["timed_late"])
def a_checksum_of_another_timestamp(log: Log) -> tuple[str, ...]:
    more = log.chance.choice((-1, 1, 1000))
    key = "inCommitTimestampOpt"
    log.change_crc(_crc(log, key), lambda crc: crc.update({key: crc[key] + more}))
    return ("crc-ict-disagrees",)


@kind("timed", avoids=["timed_late"])
def a_checksum_without_timestamp(log: Log) -> tuple[str, ...]:
    log.change_crc(_crc(log, "inCommitTimestampOpt"), lambda crc: crc.pop("inCommitTimestampOpt"))
    return ("crc-ict-missing",)


@kind(avoids=["timed", "timed_late"])
def a_checksum_with_an_unexpected_timestamp(log: Log) -> tuple[str, ...]:
    log.change_crc(_crc(log), lambda crc: crc.update(inCommitTimestampOpt=5))
    return ("crc-ict-unexpected",)


@kind()
def a_checksum_of_another_transaction(log: Log) -> tuple[str, ...]:
    log.change_crc(_crc(log, "txnId"), lambda crc: crc.update(txnId="another"))
    return ("crc-txn-id-disagrees",)


@kind("timed", avoids=["timed_late"])
def swapped_checksums(log: Log) -> tuple[str, ...]:
    one = log.pick(log.crcs()[1:])
    other = log.pick(version for version in log.crcs() if version < one)
    data = log.crc(one).read_bytes()
    log.crc(one).write_bytes(log.crc(other).read_bytes())
    log.crc(other).write_bytes(data)
    return ("crc-ict-disagrees",)


@kind()
def a_checksum_of_no_version(log: Log) -> tuple[str, ...]:
    shutil.copy(log.crc(log.pick(log.crcs())), log.crc(log.last + log.chance.randrange(1, 99)))
    return ("latest-commit-missing",)


@kind()
def a_lost_checksum(log: Log) -> tuple[str, ...]:
    log.pick([None] * (len(log.crcs()) > 1))
    log.crc(log.pick(log.crcs())).unlink()
    return ("crc-missing",)


# --------------------------------------------------------------------------------------- log compaction files


def _compaction(log: Log) -> Path:
    return log.pick(log.folder.glob("*.compacted.json"))


def _change(file: Path, change: Callable[[list[Line]], list[Line]]) -> None:
    lines = change([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@kind("compacted")
def a_compaction_cut(log: Log) -> tuple[str, ...]:
    file = _compaction(log)
    data = file.read_bytes().rstrip(b"\n")
    start = data.rfind(b"\n") + 1
    file.write_bytes(data[: log.chance.randrange(start + 1, len(data))])
    return ("compaction-unreadable",)


@kind("compacted")
def a_compaction_without_a_file(log: Log) -> tuple[str, ...]:
    def without(lines: list[Line]) -> list[Line]:
        gone = log.pick(line for line in lines if "add" in line)
        return [line for line in lines if line is not gone]

    _change(_compaction(log), without)
    return ("compaction-contradicts-commits",)


@kind("compacted")
def a_compaction_with_another_file(log: Log) -> tuple[str, ...]:
    def more(lines: list[Line]) -> list[Line]:
        add = log.pick(line["add"] for line in lines if "add" in line)
        return [*lines, {"add": {**add, "path": f"x{add['path']}"}}]

    _change(_compaction(log), more)
    return ("compaction-contradicts-commits",)


@kind("compacted")
def a_compaction_with_an_action_twice(log: Log) -> tuple[str, ...]:
    _change(_compaction(log), lambda lines: [*lines, log.pick(line for line in lines if "add" in line)])
    return ("compaction-action-twice",)


@kind("compacted")
def a_compaction_with_provenance(log: Log) -> tuple[str, ...]:
    _change(_compaction(log), lambda lines: [{"commitInfo": {"operation": "WRITE"}}, *lines])
    return ("compaction-holds-provenance",)


@kind("compacted")
def a_compaction_backwards(log: Log) -> tuple[str, ...]:
    file = _compaction(log)
    first, last = file.name.split(".")[:2]
    file.rename(log.folder / f"{last}.{first}.compacted.json")
    return ("compaction-range-invalid",)


@kind("compacted")
def a_compaction_beyond_the_log(log: Log) -> tuple[str, ...]:
    file = _compaction(log)
    last = log.last + log.chance.randrange(1, 99)
    file.rename(log.folder / f"{file.name[:20]}.{last:020d}.compacted.json")
    return ("compaction-after-latest",)


# ------------------------------------------------------------------------------------------------------- names


@kind()
def a_commit_with_a_short_name(log: Log) -> tuple[str, ...]:
    shutil.copy(log.commit(log.pick(log.versions)), log.folder / f"{log.chance.randrange(1, 10**9)}.json")
    return ("commit-name-malformed",)


@kind()
def a_checkpoint_with_another_name(log: Log) -> tuple[str, ...]:
    name = log.chance.choice(("5.checkpoint.parquet", f"{3:020d}.checkpoint.x.parquet", f"{3:020d}.checkpoint.orc"))
    (log.folder / name).write_bytes(b"x")
    return ("checkpoint-name-malformed",)


@kind()
def a_compaction_with_another_name(log: Log) -> tuple[str, ...]:
    (log.folder / f"{log.chance.randrange(9)}.{log.chance.randrange(9)}.compacted.json").write_bytes(b"")
    return ("compaction-range-invalid",)


@kind()
def a_file_that_does_not_belong_there(log: Log) -> tuple[str, ...]:
    (log.folder / log.chance.choice(("notes.txt", "data.parquet", "x"))).write_bytes(b"")
    return ("log-file-unknown",)


@kind()
def a_staged_commit_of_no_catalog(log: Log) -> tuple[str, ...]:
    folder = log.folder / "_staged_commits"
    folder.mkdir(exist_ok=True)
    shutil.copy(log.commit(log.pick(log.versions)), folder / f"{log.last + 1:020d}.{_UUID}.json")
    return ("staged-commit-unpublished",)


@kind()
def a_staged_commit_with_another_name(log: Log) -> tuple[str, ...]:
    folder = log.folder / "_staged_commits"
    folder.mkdir(exist_ok=True)
    (folder / log.chance.choice((f"{1:020d}.json", "x.json", f"1.{_UUID}.json"))).write_bytes(b"{}")
    return ("staged-commit-name-malformed",)
