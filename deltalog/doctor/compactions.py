"""Checks a log compaction file against the commits that it replaces. Pure.

Spec: PROTOCOL.md#log-compaction-files, #action-reconciliation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deltalog.doctor.commit_lines import Actions, examine_bytes
from deltalog.doctor.findings import Finding, found
from deltalog.doctor.live_files import digest_of, repeated, vector_id
from deltalog.log.checksum import differences
from deltalog.log.replay import PartialState
from deltalog.protocol.actions import AddFile, Metadata, Protocol, RemoveFile
from deltalog.protocol.paths import LogFile, log_path

_Key = tuple[str, "str | None"]


def _key(file: AddFile | RemoveFile) -> _Key:
    return file.path, vector_id(file.deletion_vector)


@dataclass(slots=True)
class Window:
    """The reconciled actions of the commits that a log compaction file covers."""

    file: LogFile
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str | None] = field(default_factory=dict)
    adds: dict[_Key, int] = field(default_factory=dict)
    # The value is true if the file was live before the first commit; only in this case do readers need the remove
    # action.
    removes: dict[_Key, bool] = field(default_factory=dict)
    versions: int = 0
    is_known: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether all commits of the range were added and could be read."""
        end = self.file.end_version
        return self.is_known and end is not None and self.versions == end - self.file.version + 1

    def take(self, actions: Actions) -> None:
        """Add one commit."""
        self.versions += 1
        self.is_known = self.is_known and actions.is_whole
        self.protocol = actions.protocol or self.protocol
        self.metadata = actions.metadata or self.metadata
        self.transactions.update((each.app_id, each.version) for each in actions.transactions)
        self.domains.update((each.domain, None if each.removed else each.configuration) for each in actions.domains)
        for remove in actions.removes:
            key = _key(remove)
            was_added = self.adds.pop(key, None) is not None
            self.removes[key] = self.removes.get(key, not was_added)
        for add in actions.adds:
            key = _key(add)
            self.removes.pop(key, None)
            self.adds[key] = digest_of(add)


def examine_compaction(data: bytes, window: Window) -> Iterator[Finding]:
    """Compare a log compaction file with ``window``, the reconciled actions of the commits that the file covers."""
    version, path = window.file.version, log_path(window.file.name)
    actions = Actions()
    wrong = [each for each in examine_bytes(data, version, path, actions) if each.severity == "error"]
    if wrong:
        yield found("compaction-unreadable", wrong[0].message, version, path)
        return
    if actions.infos or actions.cdc:
        text = f"The file has {len(actions.infos)} commitInfo and {len(actions.cdc)} cdc actions."
        yield found("compaction-holds-provenance", text, version, path)
    for kind, times in (("protocol", len(actions.protocols)), ("metaData", len(actions.metadatas))):
        if times > 1:
            yield found("compaction-action-twice", f"The file has {times} {kind} actions.", version, path)
    adds, removes = {_key(add) for add in actions.adds}, {_key(remove) for remove in actions.removes}
    twice = [*repeated(actions.adds), *(key[0] for key in sorted(adds & removes, key=str))]
    if len(removes) < len(actions.removes):
        twice.append("a removed file")
    for name in twice[:5]:
        yield found("compaction-action-twice", f"The file has several actions for {name}.", version, path)
    if not window.is_complete:
        yield found("compaction-not-checked", f"Only {window.versions} of its commits could be read.", version, path)
        return
    for text in _differences(actions, window):
        yield found("compaction-contradicts-commits", text, version, path)


def _differences(actions: Actions, window: Window) -> Iterator[str]:
    listed = {_key(add): digest_of(add) for add in actions.adds}
    for name, keys in (
        ("lacks the added file", window.adds.keys() - listed.keys()),
        ("has the added file", listed.keys() - window.adds.keys()),
        (
            "has different values for",
            {key for key in listed.keys() & window.adds.keys() if listed[key] != window.adds[key]},
        ),
    ):
        if keys:
            yield f"The file {name} {min(keys, key=str)[0]} ({len(keys)} such files)."
    removed = {_key(remove) for remove in actions.removes}
    missing = {key for key, matters in window.removes.items() if matters} - removed
    extra = removed - window.removes.keys()
    for name, keys in (("lacks the removed file", missing), ("has the removed file", extra)):
        if keys:
            yield f"The file {name} {min(keys, key=str)[0]} ({len(keys)} such files)."
    protocol = actions.protocol
    metadata = actions.metadata
    for name, own, other in (("protocol", window.protocol, protocol), ("metaData", window.metadata, metadata)):
        if (own is None) != (other is None):
            yield f"The file {'lacks the' if other is None else 'has a'} {name} action, unlike its commits."
    for name in differences(PartialState(window.protocol, window.metadata), PartialState(protocol, metadata)):
        yield f"The {name} differs from that of the commits."
    if {each.app_id: each.version for each in actions.transactions} != window.transactions:
        yield "The transaction identifiers differ from those of the commits."
    domains = {each.domain: each.configuration for each in actions.domains if not each.removed}
    if domains != {name: text for name, text in window.domains.items() if text is not None}:
        yield "The domain metadata differs from that of the commits."
