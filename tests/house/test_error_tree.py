"""The tree of error classes that is drawn in errors.py equals the class hierarchy."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from deltalog import CallError, CommitStateUnknownError, DeltaLogError, errors
from deltalog.errors import Outcome

CLASSES = [
    value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, DeltaLogError)
]  # fmt: skip


def drawn() -> dict[str, tuple[str | None, str | None]]:
    """For each name in the drawing: its parent, and the built-in error in brackets."""
    assert errors.__doc__ is not None
    found: dict[str, tuple[str | None, str | None]] = {}
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([ │├└─]*)(\w+Error)(?: \((\w+)\))?(?:  .*)?$", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        del above[depth:]
        found[match[2]] = (above[-1] if above else None, match[3])
        above.append(match[2])
    return found


def test_the_drawing_shows_every_class_under_its_parent() -> None:
    real = {}
    for each in CLASSES:
        parents = [base for base in each.__bases__ if issubclass(base, DeltaLogError)]
        others = [base.__name__ for base in each.__bases__ if not issubclass(base, DeltaLogError)]
        others = [name for name in others if name not in ("_Annotated", "Exception")]
        real[each.__name__] = (parents[0].__name__ if parents else None, others[0] if others else None)
    assert drawn() == real


def test_codes_are_unique_and_in_capitals() -> None:
    codes = [each.code for each in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code) for code in codes)
    assert all("code" in vars(each) for each in CLASSES), "every error needs its own code"


def test_the_drawing_lists_the_classes_with_another_outcome_than_nothing_committed() -> None:
    assert errors.__doc__ is not None
    listed = re.findall(r"^    (UNKNOWN|PARTLY_COMMITTED|COMMITTED) +(\w.*)$", errors.__doc__, re.M)
    by_outcome = {Outcome[outcome]: set(names.split(", ")) for outcome, names in listed}
    real = {outcome: {each.__name__ for each in CLASSES if each.outcome is outcome} for outcome in Outcome}
    assert real.pop(Outcome.NOTHING_COMMITTED) and by_outcome == real


def instance_of(kind: type[DeltaLogError]) -> tuple[DeltaLogError, dict[str, object]]:
    """An instance of an error class with a value for every attribute that the class annotates, and these values."""
    facts: dict[str, object] = {name: f"the {name}" for name in kind._facts}
    return kind("what, where, what to do", **facts), facts


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_errors_survive_pickling(kind: type[DeltaLogError]) -> None:
    """Errors are sent between processes, and from Spark's executors to its driver."""
    error, facts = instance_of(kind)
    error.__cause__ = ValueError("why")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and str(copy) == str(error) == copy.message == "what, where, what to do"
    assert (copy.code, copy.outcome, copy.facts) == (kind.code, kind.outcome, facts)
    assert {name: getattr(copy, name) for name in facts} == facts


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_attributes_are_those_that_the_class_annotates(kind: type[DeltaLogError]) -> None:
    _, facts = instance_of(kind)
    annotated = {name for each in kind.__mro__ for name in inspect.get_annotations(each)}
    assert annotated - {"code", "outcome", "message"} == facts.keys()
    with pytest.raises(TypeError, match="unexpected keyword"):
        kind("message", **{**facts, "not_an_attribute": 1})


def test_a_subclass_declares_its_attributes_by_annotations() -> None:
    class Late(errors.VersionConflictError, errors.InvalidActionError):
        code = "LATE"
        since_ms: int
        where: str = "here"

    conflict = {"winning_version": 3, "winning_operation": None, "expected_parent": 2}
    found = Late("too late", since_ms=7, **conflict)  # type: ignore[arg-type]
    assert found.facts == {
        **conflict, "path": None, "read_version": None, "partition_values": None, "retryable": True, "since_ms": 7,
        "where": "here",
    }  # fmt: skip
    assert (str(found), found.args, repr(found)) == ("too late", ("too late",), "Late('too late')")
    with pytest.raises(TypeError, match="missing the keyword argument 'since_ms'"):
        Late("m", **conflict)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_docstring(kind: type[DeltaLogError]) -> None:
    assert kind.__doc__ and "__doc__" in vars(kind)


def test_errors_are_also_what_python_calls_them() -> None:
    assert issubclass(errors.CallError, ValueError)
    assert issubclass(errors.NotFoundError, LookupError)
    assert issubclass(errors.StoreError, OSError)
    assert issubclass(errors.ObjectNotFoundError, FileNotFoundError)


def test_an_unknown_state_from_another_process_says_where_to_look() -> None:
    error = CommitStateUnknownError("m", resolve=lambda: None, version=3, txn_id="t")
    assert error.resolve() is None
    copy = pickle.loads(pickle.dumps(error))
    with pytest.raises(CallError, match="look for txnId t in version 3"):
        copy.resolve()
