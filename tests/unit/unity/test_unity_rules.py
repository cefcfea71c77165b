"""The rules of the client of a Unity Catalog: proposals, refusals, outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from deltalog.errors import CatalogRequestError
from deltalog.unity import messages, rules
from deltalog.unity.rules import Reaction, Verdict


def commit(version: int, **changes: Any) -> messages.Commit:
    given = {
        "version": version,
        "timestamp": 1000 + version,
        "file_name": f"{version:020d}.txn-{version}.json",
        "file_size": 10,
        "file_modification_timestamp": 5,
    }
    return messages.Commit(**{**given, **changes})


def loaded(latest: int | None, *commits: messages.Commit) -> messages.LoadedTable:
    metadata = messages.TableMetadata(
        etag="e",
        table_type="MANAGED",
        table_uuid="u",
        location="s3://b/t",
        created_time=0,
        updated_time=0,
        columns={},
        properties={},
    )
    return messages.LoadedTable(metadata=metadata, commits=commits, latest_table_version=latest)


def test_the_head_lists_what_is_not_known_to_be_published() -> None:
    answer = loaded(4, commit(4), commit(3), commit(2))
    head = rules.head_of(answer, "c")
    assert (head.version, [each.version for each in head.unpublished]) == (4, [2, 3, 4])
    assert head.published_version == 1
    assert [each.version for each in rules.head_of(answer, "c", 3).unpublished] == [4]
    assert rules.head_of(answer, "c", 4).unpublished == ()
    assert rules.head_of(loaded(0), "c").version == 0


@pytest.mark.parametrize(
    "answer",
    [
        loaded(None),
        loaded(-1),
        loaded(4, commit(3)),
        loaded(4, commit(4), commit(2)),
        loaded(4, commit(4), commit(4)),
        loaded(0, commit(0)),
        loaded(4, commit(4, file_name="4.json")),
        loaded(4, commit(4, file_name=f"{3:020d}.x.json")),
        loaded(4, commit(4, file_name=f"{4:020d}.../x.json")),
        loaded(4, commit(4, file_size=0)),
    ],
)
def test_a_head_that_contradicts_itself(answer: messages.LoadedTable) -> None:
    with pytest.raises(CatalogRequestError):
        rules.head_of(answer, "c")


def test_the_name_of_the_file_decides_whose_a_version_is() -> None:
    head = rules.head_of(loaded(4, commit(4), commit(3)), "c")
    assert rules.verdict(head, 4, commit(4).file_name) is Verdict.OURS
    assert rules.verdict(head, 3, "another") is Verdict.ANOTHERS
    assert rules.verdict(head, 5, commit(5).file_name) is Verdict.FREE
    assert rules.verdict(head, 2, commit(2).file_name) is Verdict.PUBLISHED


@pytest.mark.parametrize(
    ("status", "error_type", "reaction"),
    [
        (409, "CommitVersionConflictException", Reaction.RELOAD),
        (409, "UpdateRequirementConflictException", Reaction.RELOAD),
        (409, None, Reaction.RELOAD),
        (429, "ResourceExhaustedException", Reaction.PUBLISH),
        (429, "RESOURCE_EXHAUSTED", Reaction.PUBLISH),
        (429, None, Reaction.PUBLISH),
        (429, "TooManyRequestsException", Reaction.REFUSED),
        (400, "InvalidParameterValueException", Reaction.REFUSED),
        (403, "PermissionDeniedException", Reaction.REFUSED),
        (404, "NoSuchTableException", Reaction.REFUSED),
        (501, "NotImplementedException", Reaction.REFUSED),
    ],
)
def test_what_follows_a_refusal(status: int, error_type: str | None, reaction: Reaction) -> None:
    assert rules.reaction_to(CatalogRequestError("refused", status=status, error_type=error_type)) is reaction


def test_a_proposal_names_the_etag_only_if_it_changes_the_metadata() -> None:
    uuid = messages.AssertTableUuid(uuid="u")
    rows = rules.proposal("u", commit(1), [], "e", None)
    assert rows.requirements == (uuid,)
    assert rows.updates == (messages.AddCommit(commit=commit(1)),)
    mark = messages.SetDomainMetadata(updates={"delta.rowTracking": {"rowIdHighWaterMark": 3}})
    assert rules.proposal("u", commit(1), [mark], "e", None).requirements == (uuid,)
    changed = rules.proposal("u", commit(1), [messages.SetProperties(updates={"a": "b"})], "e", 0)
    assert changed.requirements == (uuid, messages.AssertEtag(etag="e"))
    assert changed.updates[-1] == messages.SetLatestBackfilledVersion(latest_published_version=0)
    assert rules.proposal("u", commit(1), changed.updates[:1], None, None).requirements == (uuid,)
