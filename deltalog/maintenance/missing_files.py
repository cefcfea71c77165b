"""Removes files that no longer exist in the store from a table, as delta-rs's repair (FSCK) does.

Spec: PROTOCOL.md leaves the handling of missing files to writers.
"""

from __future__ import annotations

from deltalog.arrow_arrays import combined, strings
from deltalog.lazy_arrow import pc
from deltalog.log.file_tables import add_actions
from deltalog.maintenance.restore import missing_among
from deltalog.protocol.codec import canonical_json
from deltalog.write.table_handle import TableHandle


def remove_missing(handle: TableHandle, dry_run: bool) -> tuple[str, ...]:
    """Commit the removal of the live files that no longer exist; with ``dry_run`` only find them. Returns the paths of
    these files, as in the log. The rows of these files are lost; the commit only makes the table readable again. No
    commit is made if all files exist. Raises as ``Transaction.commit``. Cost: as ``Snapshot.files``, 1 HEAD for each
    file, 1 commit.
    """
    with handle.transaction() as transaction:
        files = transaction.find_files()
        missing = missing_among(handle.reader.files, add_actions(files))
        if missing and not dry_run:
            transaction.remove_files(files.filter(pc.is_in(combined(files["path"]), value_set=strings(list(missing)))))
            metrics = {"dry_run": "false", "files_removed": canonical_json(list(missing))}
            transaction.commit("FSCK", {}, metrics)
    return tuple(missing)
