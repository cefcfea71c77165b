"""The fuzz targets: one for each kind of file to damage, with the checks that must still succeed afterwards.

For every target, only a DeltaLogError may be raised. ``judge`` adds the checks that depend on the kind of file: answers
must not depend on a hint, the checksums of a deletion vector file must detect damage, and unsound statistics must not
cause files to be skipped.
"""

from __future__ import annotations

import functools
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.fuzz import entrances, expressions, tables
from tests.fuzz.footers import damage_footer
from tests.fuzz.mutations import damage_bytes, dump, mutate_json_lines, mutate_json_text, mutate_tree, odd_value
from tests.fuzz.parquet import damage_parquet
from tests.fuzz.tables import LAST, LOG, Files, commit_path
from tests.fuzz.usage import PREDICATES, Outcomes, observe

# A function that judges the outcomes of a case: returns a text about the rule that they violate, or None.
Judge = Callable[["Case", Outcomes], "str | None"]


@dataclass(frozen=True)
class Case:
    """A damaged table: the table, the damaged file, and the predicates to query it with."""

    target: str
    seed: int
    table: str
    path: str
    files: Files
    predicates: tuple[str, ...]

    def __str__(self) -> str:
        return f"--target {self.target} --seed {self.seed}  # {self.table}: {self.path}"


@dataclass(frozen=True)
class Target:
    """``tables``: the tables by name, each with the paths that may be damaged. ``damage``: the new bytes of a file.
    ``focus``: the additional steps of a brief run. ``use``: the function that runs on the damaged table."""

    name: str
    tables: Mapping[str, Callable[[], tuple[Files, list[str]]]]
    damage: Callable[[bytes, str, Random], bytes]
    judge: Judge = lambda case, outcomes: None
    focus: tuple[str, ...] = ()
    use: Callable[..., Outcomes] = observe

    def case(self, seed: int) -> Case:
        """The case for a seed; always the same for the same seed."""
        random = Random(f"{self.name}:{seed}")
        table = random.choice(sorted(self.tables))
        files, paths = self.tables[table]()
        path = random.choice(paths)
        predicates = tuple(random.sample(PREDICATES, 3))
        return Case(self.name, seed, table, path, {**files, path: self.damage(files[path], path, random)}, predicates)

    def run(self, case: Case, brief: bool = False) -> tuple[Outcomes, str | None]:
        """The outcomes, and a message if they violate a requirement, otherwise None. Raises any error that is not a
        DeltaLogError."""
        outcomes = self.use(case.files, case.predicates, brief=brief)
        return outcomes, self.judge(case, outcomes)


def _matching(files: Files, *parts: str) -> tuple[Files, list[str]]:
    """The paths that contain all of ``parts``."""
    return files, sorted(path for path in files if all(part in path for part in parts))


def _log(name: str, *parts: str) -> Callable[[], tuple[Files, list[str]]]:
    return lambda: _matching(tables.fixture(name), LOG, *parts)


def _json(data: bytes, path: str, random: Random) -> bytes:
    return mutate_json_lines(data, random)


def _parquet_or_json(data: bytes, path: str, random: Random) -> bytes:
    return damage_parquet(data, random) if path.endswith(".parquet") else mutate_json_lines(data, random)


# --------------------------------------------------------------------------------------------------- oracles


@functools.cache
def truth(target: str, table: str) -> Outcomes:
    """The answers to the queries on the undamaged table."""
    files, _ = TARGETS[target].tables[table]()
    return observe(files, PREDICATES)


def _unchanged(case: Case, outcomes: Outcomes) -> str | None:
    """Every answer must equal that of the undamaged table, because the damaged file is only a hint."""
    expected = truth(case.target, case.table)
    wrong = {step: answer for step, answer in outcomes.items() if expected.get(step) != answer}
    return f"changed: {wrong}" if wrong else None


def _true_or_refused(*steps: str) -> Judge:
    """A judge that requires the answer of each of ``steps`` (by default of all steps) to be an error, or to equal the
    answer for the undamaged table."""

    def judge(case: Case, outcomes: Outcomes) -> str | None:
        expected = truth(case.target, case.table)
        asked = steps or tuple(outcomes)
        wrong = {s: outcomes[s] for s in asked if outcomes.get(s, "").startswith("=") and outcomes[s] != expected[s]}
        return f"silently wrong: {wrong}" if wrong else None

    return judge


def _judge_checksums(case: Case, outcomes: Outcomes) -> str | None:
    """A version checksum that does not identify its commit has no effect. A checksum that identifies its commit is
    trusted until the log itself is read. The list of files never depends on a wrong checksum; nor do the rows, if the
    commits that are read contain the schema."""
    if not _names_its_commit(case):
        return _true_or_refused()(case, outcomes)
    told = case.table in ("commits", "checkpoint")
    return _true_or_refused("files", "totals again", "older", "files again", *(("rows", *PREDICATES) if told else ()))(
        case, outcomes
    )


def _names_its_commit(case: Case) -> bool:
    files, _ = TARGETS[case.target].tables[case.table]()
    sound = json.loads(files[case.path])
    try:
        damaged = json.loads(case.files[case.path])
        return any(damaged.get(key) == sound.get(key) is not None for key in ("txnId", "inCommitTimestampOpt"))
    except (ValueError, AttributeError, RecursionError):
        return False


_rows_true_or_refused = _true_or_refused("rows", *PREDICATES)


# ------------------------------------------------------------------------------------------ deletion vectors


def _damage_vectors(data: bytes, path: str, random: Random) -> bytes:
    """Damage the bytes of a deletion vector file, or its descriptor in a commit; sometimes recompute the checksum."""
    if path.endswith(".bin"):
        damaged = damage_bytes(data, random)
        return _with_checksums(damaged) if random.random() < 0.5 else damaged
    return _in_action(data, "deletionVector", _descriptor, random)


def _with_checksums(data: bytes) -> bytes:
    """Recompute the checksums of the two deletion vectors, so that readers do not stop at a wrong checksum but read the
    damaged content."""
    out = bytearray(data)
    for descriptor in tables.VECTORS:
        start = descriptor["offset"] + 4
        end = start + descriptor["sizeInBytes"]
        out[end : end + 4] = zlib.crc32(out[start:end]).to_bytes(4, "big")
    return bytes(out)


def _descriptor(descriptor: Any, random: Random) -> Any:
    draw = random.random()
    if draw < 0.4 and descriptor["storageType"] == "i":
        damaged = damage_bytes(tables.vector_bytes(random.choice(([3], [0, 1], range(300), [2**33, 5], [9]))), random)
        cardinality = random.choice((1, 2, 300, 0, 5))
        return {
            **descriptor, "pathOrInlineDv": tables.z85(damaged), "sizeInBytes": len(damaged), "cardinality": cardinality
        }  # fmt: skip
    if draw < 0.6:
        key = random.choice(("sizeInBytes", "cardinality", "offset", "maxRowIndex"))
        lie = (0, 1, 2, 5, -1, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1)
        return {**descriptor, key: random.choice(lie)}
    if draw < 0.7:
        return {**descriptor, "storageType": random.choice("uip")}
    return mutate_tree(descriptor, random)


def _in_action(data: bytes, key: str, change: Callable[[Any, Random], Any], random: Random) -> bytes:
    """Change one value called ``key`` in the file's actions; damage the file blindly if no action has such a value."""
    rows = [json.loads(row) for row in data.splitlines()]
    having = [body for row in rows for body in row.values() if isinstance(body, dict) and key in body]
    if not having:
        return mutate_json_lines(data, random)
    body = random.choice(having)
    body[key] = change(body[key], random)
    return b"".join(dump(row).encode("utf-8", "surrogatepass") + b"\n" for row in rows)


def _judge_vectors(case: Case, outcomes: Outcomes) -> str | None:
    """Checksums protect a deletion vector file against damage: deleted rows must not reappear, and live rows must not
    disappear."""
    if case.path.endswith(".bin") and not _sound_checksums(case.files[case.path]):
        return _rows_true_or_refused(case, outcomes)
    return None


def _sound_checksums(data: bytes) -> bool:
    return _with_checksums(data) == data


# ------------------------------------------------------------------------------------------------ statistics


def _damage_statistics(data: bytes, path: str, random: Random) -> bytes:
    def change(text: Any, random: Random) -> Any:
        return odd_value(random) if random.random() < 0.05 else mutate_json_text(text, random)

    if random.random() < 0.2:
        return _in_action(data, "partitionValues", _other_partition, random)
    return _in_action(data, "stats", change, random)


def _other_partition(values: Any, random: Random) -> Any:
    value = odd_value(random)
    return {**values, random.choice(sorted(values)): value if random.random() < 0.2 else str(value)}


def _judge_statistics(case: Case, outcomes: Outcomes) -> str | None:
    """Damaged statistics must not cause files to be skipped, so the rows must be the same as without statistics. If
    data other than statistics was damaged too, a result with different rows may be right, so nothing is checked."""
    try:
        damaged = _statistics_of(case.files[case.path])
        rest = _without_statistics(case.files[case.path])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    files, _ = TARGETS[case.target].tables[case.table]()
    sound = _statistics_of(files[case.path])
    lies = any(leaf not in sound.get(path, set()) for path, leaves in damaged.items() for leaf in leaves)
    return None if lies or rest != _without_statistics(files[case.path]) else _rows_true_or_refused(case, outcomes)


def _statistics_of(data: bytes) -> dict[str, set[tuple[str, ...]]]:
    """For each file, those leaf values of its statistics that a reader may use, as strings."""
    adds = [row["add"] for row in map(json.loads, data.splitlines()) if isinstance(row.get("add"), dict)]
    return {add["path"]: _believable(add.get("stats")) for add in adds}


def _without_statistics(data: bytes) -> list[Any]:
    rows = [json.loads(row) for row in data.splitlines()]
    for row in rows:
        row.get("add", {}).pop("stats", None)
    return rows


def _believable(text: Any) -> set[tuple[str, ...]]:
    try:
        parsed = json.loads(text, object_pairs_hook=_unique) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return set()
    found: set[tuple[str, ...]] = set()
    _leaves(parsed, (), found)
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Builds an object. A reader may use any value of a duplicate key, so all values are kept, under the key
    ``twice``."""
    merged = dict(pairs)
    if len(merged) == len(pairs):
        return merged
    return {**merged, "twice": repr(pairs)}


def _leaves(node: Any, path: tuple[str, ...], found: set[tuple[str, ...]]) -> None:
    if isinstance(node, dict):
        for key, item in node.items():
            _leaves(item, (*path, key), found)
    elif isinstance(node, list):
        return
    elif node is not None:
        found.add((*path, repr(node)))


# ----------------------------------------------------------------------------------------------- expressions


@dataclass(frozen=True)
class Entrances(Target):
    """A target that passes expressions to calls instead of damaging tables; its ``tables`` are these calls."""

    def run(self, case: Case, brief: bool = False) -> tuple[Outcomes, str | None]:
        return expressions.enter(case.table, case.files[case.path]), None


def _entrance() -> tuple[Files, list[str]]:
    return {"expression": b"i = 1"}, ["expression"]


def _hostile(data: bytes, path: str, random: Random) -> bytes:
    return expressions.as_file(expressions.hostile_text(random))


# ---------------------------------------------------------------------------------------------- fuzz targets


def _checksums() -> dict[str, Callable[[], tuple[Files, list[str]]]]:
    last = f"{LAST:020d}.crc"
    return {
        "commits": lambda: _matching(tables.with_checksums(tables.plain()), last),
        "checkpoint": lambda: _matching(tables.with_checksums(tables.classic(tables.AT)), last),
        "ict_checkpointed": _log("ict_checkpointed", ".crc"),
        "no_ict": _log("no_ict", ".crc"),
    }


_ALL = (
    Target(
        "commit",
        {
            "commits": lambda: _matching(tables.plain(), LOG, ".json"),
            "tail": lambda: _matching(tables.classic(tables.AT), LOG, ".json"),
            "ict_enabled_late": _log("ict_enabled_late", ".json"),
            "ict_all_types": _log("ict_all_types", ".json"),
            "every_type": _log("ict_partitioned_by_every_type", ".json"),
        },
        _json,
    ),
    Target(
        "checkpoint",
        {
            "classic": lambda: _matching(tables.classic(), ".checkpoint"),
            "classic alone": lambda: _matching(tables.classic(tables.AT), ".checkpoint"),
            "multi-part": lambda: _matching(tables.multi_part(tables.AT), ".checkpoint"),
            "ict_truncated": _log("ict_truncated", ".checkpoint"),
        },
        _parquet_or_json,
    ),
    Target(
        "v2",
        {
            "json": lambda: _matching(tables.v2("json", tables.AT), LOG, "eckpoint."),
            "json sidecars": lambda: _matching(tables.v2("json", tables.AT), "_sidecars"),
            "parquet": lambda: _matching(tables.v2("parquet", tables.AT), LOG, "eckpoint."),
            "parquet sidecars": lambda: _matching(tables.v2("parquet", 0), "_sidecars"),
            "classic name": lambda: _matching(tables.v2("classic", tables.AT), LOG, "eckpoint."),
        },
        _parquet_or_json,
    ),
    Target("crc", _checksums(), _json, _judge_checksums),
    Target(
        "hint",
        {
            "classic": lambda: _matching(tables.classic(), "_last_checkpoint"),
            "truncated": lambda: _matching(tables.multi_part(tables.AT), "_last_checkpoint"),
            "v2": lambda: _matching(tables.v2("json", tables.AT), "_last_checkpoint"),
            "ict_checkpointed": _log("ict_checkpointed", "_last_checkpoint"),
        },
        _json,
        _unchanged,
    ),
    Target(
        "vector",
        {
            "file": lambda: _matching(tables.plain(), ".bin"),
            "log": lambda: (tables.plain(), [commit_path(3), commit_path(LAST)]),
        },
        _damage_vectors,
        _judge_vectors,
        ("TRUE",),
    ),
    Target(
        "stats",
        {"commits": lambda: (tables.plain(), [commit_path(v) for v in (1, 2, 4)])},
        _damage_statistics,
        _judge_statistics,
        PREDICATES,
    ),
    Target("data", {"commits": lambda: _matching(tables.plain(), "f", ".parquet")}, _parquet_or_json, focus=("TRUE",)),
    Target(
        "footer",
        {kind: functools.partial(entrances.with_foreign, kind) for kind in ("plain", "groups", "bare", "int96")},
        lambda data, path, random: damage_footer(data, random),
        use=entrances.enter,
    ),
    Target(
        "checkpoint footer",
        {"checkpoint": entrances.with_checkpoint},
        lambda data, path, random: damage_footer(data, random),
        use=entrances.enter,
    ),
    Entrances("expression", dict.fromkeys(expressions.ENTRANCES, _entrance), _hostile),
    Target("compacted", {"compacted": lambda: _matching(tables.compacted(), ".compacted.json")}, _json),
)
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
