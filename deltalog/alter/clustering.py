"""The verb that sets the clustering columns of a table.

Spec: PROTOCOL.md#clustered-table, #writer-requirements-for-clustered-table.
"""

from __future__ import annotations

from collections.abc import Sequence

from deltalog.commit_result import CommitResult
from deltalog.protocol import features
from deltalog.protocol.column_paths import path_text
from deltalog.write.clustering_columns import FEATURE, check_statistics
from deltalog.write.commit_info import UserMetadata
from deltalog.write.transaction import Transaction, skipped


def cluster_by(
    transaction: Transaction, columns: Sequence[str | Sequence[str]], user_metadata: UserMetadata
) -> CommitResult:
    """Commit new clustering columns; an empty sequence removes clustering. No file is rewritten."""
    snapshot = transaction.snapshot
    assert snapshot is not None
    before, changes = snapshot.clustering_columns, transaction.metadata_changes
    is_clustered = FEATURE in features.writer_features(snapshot.protocol)
    if not columns and not is_clustered:
        return skipped(transaction)
    changes.set_clustering(columns)
    paths = changes.clustering_columns
    if paths == before and is_clustered:
        return skipped(transaction)
    added = [path for path in paths if path not in before]
    check_statistics(snapshot.files(["path", "stats"]), snapshot.metadata, added, snapshot.url)
    changes.depends_on_files = bool(added)
    texts = [",".join(path_text(path) for path in each) for each in (before, paths)]
    parameters = dict(zip(("oldClusteringColumns", "newClusteringColumns"), texts, strict=True))
    return transaction.commit("CLUSTER BY", parameters, user_metadata=user_metadata)
