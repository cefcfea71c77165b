"""Functions that damage the files derived from commits (the hint, log compaction files, version checksums), and staged
commits."""

from __future__ import annotations

from pathlib import Path

from tests.support.doctor.damaged_tables import (
    Damage,
    add_line,
    case,
    checkpointed,
    compacted,
    compaction_edit,
    copy,
    delete,
    edit_crc,
    edit_hint,
    log,
    overwrite,
    plain,
    rename,
    truncate,
    with_vectors,
    without,
)
from tests.support.doctor.damages.lines import INFO, NAME


def staged(path: Path) -> None:
    log(path, "_staged_commits").mkdir(exist_ok=True)
    name = f"{9:020d}.12345678-1234-1234-1234-123456789abc.json"
    log(path, f"_staged_commits/{name}").write_bytes(b"{}")


DERIVED: list[Damage] = [
    case("hint that is no JSON", checkpointed, overwrite("_last_checkpoint", b"{"), "last-checkpoint-unreadable"),
    case("hint to no checkpoint", checkpointed, edit_hint(lambda h: h.update(version=2)), "last-checkpoint-to-missing"),
    case(
        "hint with another checksum",
        checkpointed,
        edit_hint(lambda h: h.update(size=77), seal=False),
        "last-checkpoint-checksum-wrong",
    ),
    case("hint of another size", checkpointed, edit_hint(lambda h: h.update(size=77)), "last-checkpoint-size-differs"),
    case("no hint", checkpointed, delete("_delta_log/_last_checkpoint"), "last-checkpoint-missing"),
    case("hint of parts", checkpointed, edit_hint(lambda h: h.update(parts=3)), "last-checkpoint-to-missing"),
    case(
        "compaction lacks a file",
        compacted,
        compaction_edit(
            lambda ls: [x for i, x in enumerate(ls) if i != next(n for n, y in enumerate(ls) if "add" in y)]
        ),
        "compaction-contradicts-commits",
    ),
    case(
        "compaction lacks a remove",
        compacted,
        compaction_edit(lambda ls: [*without("remove")(ls), add_line("more.parquet")]),
        "compaction-contradicts-commits",
    ),
    case("compaction damaged", compacted, truncate("_delta_log/*.compacted.json"), "compaction-unreadable"),
    case(
        "compaction with commitInfo", compacted, compaction_edit(lambda ls: [INFO, *ls]), "compaction-holds-provenance"
    ),
    case(
        "compaction with a file twice",
        compacted,
        compaction_edit(lambda ls: [*ls, next(x for x in ls if "add" in x)]),
        "compaction-action-twice",
    ),
    case(
        "compaction backwards",
        compacted,
        rename("*.compacted.json", f"{5:020d}.{1:020d}.compacted.json"),
        "compaction-range-invalid",
    ),
    case(
        "compaction beyond the log",
        compacted,
        rename("*.compacted.json", f"{1:020d}.{9:020d}.compacted.json"),
        "compaction-after-latest",
    ),
    case(
        "compaction without commits",
        compacted,
        delete(f"_delta_log/{2:020d}.json"),
        "compaction-not-checked",
        "version-gap",
    ),
    case("checksum that is no JSON", plain, overwrite(f"{NAME}.crc", b"{{"), "crc-unreadable"),
    case("checksum without protocol", plain, edit_crc(1, lambda c: c.pop("protocol")), "crc-field-missing"),
    case("checksum of two protocols", plain, edit_crc(1, lambda c: c.update(numProtocol=2)), "crc-numbers-wrong"),
    case("checksum of more files", plain, edit_crc(1, lambda c: c.update(numFiles=9)), "crc-files-differ"),
    case("checksum of more bytes", plain, edit_crc(1, lambda c: c.update(tableSizeBytes=9)), "crc-size-differs"),
    case(
        "checksum of another protocol",
        plain,
        edit_crc(1, lambda c: c["protocol"].update(minWriterVersion=4)),
        "crc-protocol-differs",
    ),
    case(
        "checksum of other metadata",
        plain,
        edit_crc(1, lambda c: c["metadata"].update(id="other")),
        "crc-metadata-differs",
    ),
    case(
        "checksum of another transaction", plain, edit_crc(1, lambda c: c.update(txnId="other")), "crc-txn-id-disagrees"
    ),
    case(
        "checksum of more applications",
        plain,
        edit_crc(1, lambda c: c.update(setTransactions=[{"appId": "a", "version": 1}])),
        "crc-transactions-differ",
    ),
    case(
        "checksum of more domains",
        plain,
        edit_crc(1, lambda c: c.update(domainMetadata=[{"domain": "a", "configuration": "", "removed": False}])),
        "crc-domains-differ",
    ),
    case(
        "checksum of other bins",
        plain,
        edit_crc(1, lambda c: c["fileSizeHistogram"]["fileCounts"].__setitem__(0, 9)),
        "crc-histogram-differs",
    ),
    case(
        "checksum of other deletions",
        with_vectors,
        edit_crc(4, lambda c: c.update(numDeletedRecordsOpt=9)),
        "crc-deletions-differ",
    ),
    case("checksum of a deleted commit", checkpointed, delete(f"_delta_log/{0:020d}.json"), "crc-without-commit"),
    case("checksum without a commit", plain, copy(f"{NAME}.crc", f"{8:020d}.crc"), "latest-commit-missing"),
    case("staged commit", plain, staged, "staged-commit-unpublished"),
]
