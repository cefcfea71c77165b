"""The doctor on every table of the corpus: it has the errors that the table is known for, and no other."""

from __future__ import annotations

import pytest

from deltalog import check
from tests.corpus.test_corpus import CORPUS, absent, found

# The errors of tables that are damaged on purpose, or that consist of a log without its data files.
ERRORS: dict[str, set[str]] = {
    "delta__basic_catalog_managed": {"feature-requires-other", "ict-missing"},
    "delta__spark-variant-stable-feature-checkpoint": {"data-file-missing"},
    "deltars__cdc_ict_table": {"crc-ict-disagrees", "ict-not-increasing"},
    "deltars__checkpoint_with_partitions": {"data-file-missing"},
    "deltars__checkpoints_vacuumed": {"data-file-missing"},
    "golden__checkpoint": {"data-file-missing"},
    "golden__data-reader-absolute-paths-escaped-chars": {"metadata-missing"},
    "golden__deltalog-commit-info": {"data-file-missing"},
    "golden__deltalog-invalid-protocol-version": {"data-file-missing", "protocol-version-unknown"},
    "golden__deltalog-state-reconstruction-from-checkpoint-missing-metadata": {
        "checkpoint-metadata-missing",
        "data-file-missing",
    },
    "golden__deltalog-state-reconstruction-without-metadata": {"metadata-missing"},
    "golden__update-deleted-directory": {"data-file-missing"},
    "golden__versions-not-contiguous": {"version-gap"},
    "kernelrs__app-txn-with-last-updated": {"data-file-missing"},
    "kernelrs__crc-malformed": {"log-missing"},
    "kernelrs__with_checkpoint_no_last_checkpoint": {"data-file-missing"},
    "pert__bad_checkpoint_truncated_o": {"checkpoint-unreadable"},
    "pert__bad_commit_info_absent_o": {"commit-info-missing"},
    "pert__bad_commit_info_last_o": {"commit-info-not-first"},
    "pert__bad_data_file_missing_o": {"data-file-missing"},
    "pert__bad_dv_file_missing_o": {"vector-file-missing"},
    "pert__bad_empty_commit_o": {"commit-empty"},
    "pert__bad_first_commit_missing_o": {"log-start-missing"},
    "pert__bad_gap_after_checkpoint_o": {"version-gap"},
    "pert__bad_latest_ict_missing_o": {"ict-missing"},
    "pert__bad_middle_ict_missing_o": {"ict-missing"},
    "pert__bad_sidecar_missing_o": {"sidecar-missing"},
    "pert__bad_truncated_json_o": {"commit-truncated"},
    "pert__bad_version_gap_o": {"version-gap"},
    "pert__edge_enablement_both_absent_o": {"ict-enablement-missing"},
    "pert__edge_enablement_timestamp_absent_o": {"ict-half-enablement-pair"},
    "pert__edge_ict_not_monotonic_o": {"ict-not-increasing"},
}


@pytest.mark.long
def test_the_errors_are_those_for_which_a_table_is_known() -> None:
    if not found():
        pytest.skip(absent())
    wrong: dict[str, set[str]] = {}
    number = 0
    for folder in sorted((CORPUS / "tables").iterdir()):
        for log in sorted(folder.rglob("_delta_log")):
            number += 1
            errors = {each.rule for each in check(log.parent, deep=True).findings if each.severity == "error"}
            if errors != ERRORS.get(folder.name, set()):
                wrong[folder.name] = errors
    assert number >= 100 and wrong == {}
