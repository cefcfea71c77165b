"""Functions that damage in-commit timestamps in commits, properties and version checksums."""

from __future__ import annotations

from tests.support.doctor.damaged_tables import (
    LARGEST,
    Damage,
    append_commit,
    case,
    clone_pair,
    configure,
    copied_earlier,
    delete,
    edit,
    edit_action,
    edit_crc,
    ict_of,
    overwrite,
    plain,
    poisoned,
    set_ict,
    timed,
    timed_late,
    timed_off,
    without,
)
from tests.support.doctor.damages.lines import metadata_at

PAIR = {"delta_inCommitTimestampEnablementVersion": None, "delta_inCommitTimestampEnablementTimestamp": None}

TIMES: list[Damage] = [
    case("no commitInfo", timed, edit(2, without("commitInfo")), "commit-info-missing"),
    case("commitInfo last", timed, edit(2, lambda lines: lines[1:] + lines[:1]), "commit-info-not-first"),
    case(
        "no timestamp", timed, edit_action(2, "commitInfo", lambda info: info.pop("inCommitTimestamp")), "ict-missing"
    ),
    case(
        "no timestamp in the latest",
        timed,
        edit_action(4, "commitInfo", lambda i: i.pop("inCommitTimestamp")),
        "ict-missing",
    ),
    case("timestamp as text", timed, set_ict(2, "1700000000000"), "ict-invalid"),
    case("negative timestamp", timed, set_ict(2, -5), "ict-invalid"),
    case("timestamp as a fraction", timed, set_ict(2, 1.5), "ict-invalid"),
    case("equal timestamps", timed, lambda path: set_ict(3, ict_of(path, 2))(path), "ict-not-increasing"),
    case("timestamps that go back", timed, copied_earlier(3), "ict-not-increasing"),
    case("year 2100", timed, poisoned, "ict-in-future", "ict-drift"),
    case("largest timestamp", timed, set_ict(4, LARGEST), "ict-at-largest"),
    case(
        "half a pair: version",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementTimestamp=None),
        "ict-half-enablement-pair",
    ),
    case(
        "half a pair: time",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementVersion=None),
        "ict-half-enablement-pair",
    ),
    case("no pair", timed_late, configure(4, **PAIR), "ict-enablement-missing"),
    case(
        "pair that is no number",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementVersion="four"),
        "ict-enablement-invalid",
    ),
    case(
        "pair of another version",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementVersion="3"),
        "ict-enablement-version-wrong",
    ),
    case(
        "pair of another time",
        timed_late,
        configure(4, delta_inCommitTimestampEnablementTimestamp="7"),
        "ict-enablement-timestamp-wrong",
    ),
    case("pair after the latest version", timed, clone_pair, "ict-enablement-after-latest"),
    case(
        "pair in a table that has them from the start",
        timed,
        configure(0, delta_inCommitTimestampEnablementVersion="2", delta_inCommitTimestampEnablementTimestamp="5"),
        "ict-enablement-version-wrong",
    ),
    case(
        "stale pair",
        timed_off,
        configure(7, delta_inCommitTimestampEnablementVersion="4", delta_inCommitTimestampEnablementTimestamp="5"),
        "ict-stale-enablement-pair",
    ),
    case(
        "property without feature",
        timed,
        edit_action(0, "protocol", lambda p: p.update(writerFeatures=[])),
        "ict-property-without-feature",
    ),
    case(
        "plural name of the feature",
        timed,
        edit_action(0, "protocol", lambda p: p.update(writerFeatures=["inCommitTimestamps"])),
        "ict-feature-name",
    ),
    case(
        "turned off by a restore",
        timed,
        lambda path: append_commit({"commitInfo": {"operation": "RESTORE"}}, metadata_at(path, configuration={}))(path),
        "ict-disabled-by-operation",
    ),
    case("empty commit with timestamps on", timed, overwrite(f"{2:020d}.json", b""), "commit-empty"),
    case(
        "commit of a table with timestamps gone",
        timed,
        delete(f"_delta_log/{2:020d}.json"),
        "version-gap",
        "ict-commit-gone",
    ),
    case("timestamp while off", plain, set_ict(2, 1_700_000_000_000), "ict-not-enabled"),
    case(
        "checksum of another time", timed, edit_crc(2, lambda c: c.update(inCommitTimestampOpt=5)), "crc-ict-disagrees"
    ),
    case("checksum without a time", timed, edit_crc(2, lambda c: c.pop("inCommitTimestampOpt")), "crc-ict-missing"),
    case(
        "checksum with a time while off",
        plain,
        edit_crc(2, lambda c: c.update(inCommitTimestampOpt=5)),
        "crc-ict-unexpected",
    ),
]
