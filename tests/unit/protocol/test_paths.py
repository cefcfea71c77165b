from __future__ import annotations

import urllib.parse

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltalog.errors import UnsafePathError
from deltalog.protocol import paths
from deltalog.protocol.paths import (
    LogFileKind,
    absolute_path,
    canonical_url,
    locate,
    parse_log_file,
    place_of,
    resolve_path,
)

V = "00000000000000000007"
UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


@pytest.mark.parametrize(
    ("name", "kind", "rest"),
    [
        (f"{V}.json", LogFileKind.COMMIT, (None, None, None)),
        (f"{V}.crc", LogFileKind.CHECKSUM, (None, None, None)),
        (f"{V}.checkpoint.parquet", LogFileKind.CLASSIC_CHECKPOINT, (None, None, None)),
        (f"{V}.checkpoint.0000000002.0000000003.parquet", LogFileKind.MULTI_PART_CHECKPOINT, (None, 2, 3)),
        (f"{V}.checkpoint.{UUID}.json", LogFileKind.UUID_CHECKPOINT, (None, None, None)),
        (f"{V}.checkpoint.{UUID}.parquet", LogFileKind.UUID_CHECKPOINT, (None, None, None)),
        (f"{V}.00000000000000000009.compacted.json", LogFileKind.COMPACTION, (9, None, None)),
    ],
)
def test_names_with_a_meaning(name: str, kind: LogFileKind, rest: tuple[int | None, ...]) -> None:
    found = parse_log_file(name)
    assert found is not None
    assert (found.kind, found.version) == (kind, 7)
    assert (found.end_version, found.part, found.parts) == rest


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_last_checkpoint",
        "7.json",
        f"{V}.json.tmp",
        f".{V}.json",
        f".{V}.json.crc",
        f"{V}.JSON",
        f"{V}.json\n",
        f" {V}.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٧.json",  # digits, but not of a version
        f"{V}.checkpoint.0000000000.0000000003.parquet",
        f"{V}.checkpoint.0000000004.0000000003.parquet",
        f"{V}.checkpoint.json",
        f"{V}.compacted.json",
        "99999999999999999999.json",  # beyond a 64-bit version
    ],
)
def test_strangers_have_none(name: str) -> None:
    assert parse_log_file(name) is None


@given(st.integers(0, 2**63 - 1))
def test_names_of_a_version_parse_back_and_sort_by_version(version: int) -> None:
    assert parse_log_file(paths.commit_name(version)) is not None
    for path in (paths.commit_path(version), paths.checksum_path(version), paths.checkpoint_path(version)):
        directory, name = path.split("/")
        found = parse_log_file(name)
        assert directory == "_delta_log"
        assert found is not None and found.version == version
        assert paths.version_prefix(version) <= name
        assert version == 0 or paths.version_prefix(version - 1) < name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("part-1.parquet", "part-1.parquet"),
        ("p=a%20b/x.parquet", "p=a b/x.parquet"),
        ("p=a%2520b/x.parquet", "p=a%20b/x.parquet"),  # decoded once
        ("p=%C3%A9/x.parquet", "p=é/x.parquet"),
        ("p=é/x.parquet", "p=é/x.parquet"),
        ("%252e%252e/x", "%2e%2e/x"),
        ("a+b", "a+b"),
        ("...", "..."),
        ("/data/t/x.parquet", "x.parquet"),
        ("/data/t/p=1%2F2/x.parquet", "p=1/2/x.parquet"),
        ("file:/data/t/x.parquet", "x.parquet"),
        ("file:///data/t/a%20b", "a b"),
        ("file://localhost/data/t/x", "x"),
        ("file:/data/t/a?b#c", "a?b#c"),
        ("%u002e%u002e/x", "%u002e%u002e/x"),
        ("..;/x", "..;/x"),
    ],
)
def test_paths_below_the_table(written: str, meant: str) -> None:
    assert resolve_path(written, "/data/t") == meant
    assert resolve_path(written, "/data/t/") == meant


@pytest.mark.parametrize(
    "path",
    [
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "a/../b",
        "./x",
        "a//b",
        "a/",
        "..%2fx",
        "%2e%2e/x",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "a%00b",
        "a\nb",
        "a\\..\\b",
        "a%5Cb",
        "a%7Fb",
        "%FF",  # not UTF-8
        "/etc/passwd",
        "/data/t2/x",
        "/data/t",
        "/data/t/",
        "/data/t/../secret",
        "/data/t/%2e%2e/secret",
        "//data/t/x",
        "file:///data/secret",
        "file://elsewhere/data/t/x",
        "file:///data/t/..%2fsecret",
        "s3://bucket/x",
        "http://localhost/data/t/x",
        "javascript:x",
        "FILE:/data/t/x",
        "file:data/t/x",
        "file:////data/t/x",
        "file:///data/t/a\nb",  # urllib would remove the line feed
        "file:///data/t//x",
        "file:///data/t?/x",
        "file:///data/t#/x",
        "file://user@localhost/data/t/x",
        "/data/t%2f..%2fsecret",
        "\ud800",
        "%ed%a0%80",
        "%c0%ae%c0%ae/x",
    ],
)
def test_paths_that_leave_the_table_are_refused(path: str) -> None:
    with pytest.raises(UnsafePathError) as caught:
        resolve_path(path, "/data/t")
    assert caught.value.path == path


PLACES = [
    place_of(url)
    for url in (
        "s3://bucket/clone",
        "s3a://bucket/source",
        "s3://other",
        "/data/t",
        "file:",
        "memory://m/t",
        "s3://b%41/%41",
        "gs://bucket/g",
        "abfss://box@account/a",
    )
]


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("s3a://bucket/a%20b", "s3://bucket/a%20b"),
        ("s3n://bucket", "s3://bucket"),
        ("s3://bucket/s3a://x", "s3://bucket/s3a://x"),
        ("gcs://bucket/t", "gs://bucket/t"),
        ("az://box/t", "abfs://box/t"),
        ("abfss://box@account/t", "abfs://box@account/t"),
        ("/data/s3a:/t", "/data/s3a:/t"),
        ("memory://m/t", "memory://m/t"),
    ],
)
def test_a_place_has_one_url(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical_url(canonical) == canonical


@pytest.mark.parametrize(
    ("written", "place", "meant"),
    [
        ("x", 0, "x"),
        ("s3://bucket/clone/x", 0, "x"),
        ("s3://bucket/source/x", 1, "x"),
        ("s3a://bucket/clone/a/x%20y", 0, "a/x y"),
        ("s3n://bucket/source/x", 1, "x"),
        ("gcs://bucket/g/x", 7, "x"),
        ("abfs://box@account/a/x", 8, "x"),
        ("s3://other/deep/x", 2, "deep/x"),
        ("file:/data/t/x", 3, "x"),
        ("memory://m/t/x", 5, "x"),
        ("s3://b%41/%2541/x", 6, "x"),  # a prefix may look percent-encoded; a bucket name is never decoded
    ],
)
def test_an_absolute_path_lies_in_the_place_whose_segments_it_begins_with(written: str, place: int, meant: str) -> None:
    assert locate(written, PLACES) == (place, meant)


@pytest.mark.parametrize(
    "path",
    [
        "s3://bucket/clone-evil/x",
        "s3://bucket/clonex",
        "s3://bucket/clone",
        "s3://bucket/x",
        "s3://bucket-evil/clone/x",
        "s3://user@bucket/clone/x",
        "s3://bucket:80/clone/x",
        "s3://bucket%2fclone/x",
        "s3://bucket/clone/../source/x",
        "s3://bucket/clone/%2e%2e/source/x",
        "s3:/bucket/clone/x",
        "s3:bucket/clone/x",
        "gs://bucket/clone/x",
        "S3://bucket/clone/x",
        "memory://m/x",
        "file:/m/t/x",
        "/bucket/clone/x",
        "s3://bA/A/x",
    ],
)
def test_an_absolute_path_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(UnsafePathError, match="s3://bucket/clone"):
        locate(path, PLACES[:3] + PLACES[5:])


def test_a_long_path_is_cut_in_the_refusal_and_whole_in_its_fact() -> None:
    with pytest.raises(UnsafePathError) as caught:
        resolve_path("../" * 100_000, "/data/t")
    assert len(str(caught.value)) < 1000
    assert len(caught.value.path) == 300_000


@given(st.text(max_size=40), st.sampled_from(["/data/t", "s3://b/t", "memory://m"]))
def test_no_text_at_all_gives_a_path_that_leads_up(text: str, root: str) -> None:
    for path in (text, f"{root}/{text}", f"{root}{text}", f"file:{text}", text.replace(" ", "/../")):
        try:
            found = resolve_path(path, root)
        except UnsafePathError:
            continue
        assert found and not found.startswith("/")
        assert not {"", ".", ".."} & set(found.split("/"))
        assert "\\" not in found and "\0" not in found


def test_the_refusal_names_the_path_and_the_table() -> None:
    with pytest.raises(UnsafePathError, match=r"'\.\./x'.*table root /data/t"):
        resolve_path("../x", "/data/t")


_NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="/\\\x7f"), min_size=1).filter(
    lambda name: name not in (".", "..")
)


@given(st.lists(_NAMES, min_size=1, max_size=4).map("/".join))
@example("a:b.parquet")
@example("100%.parquet")
@example("%41")
@example("x?y#z")
def test_what_is_encoded_is_found_again(path: str) -> None:
    encoded = paths.encode_path(path)
    assert not any(char.isspace() for char in encoded)
    assert resolve_path(encoded, "/data/t") == path


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "a/b", "%2e%2e%2fx", "c:\\x", "s3://x", "a%00b", "%FF", "/data/t/x", "/data/t/_delta_log/x",
     "/data/t/_delta_log/_sidecars/a/b", "/data/t2/_delta_log/_sidecars/x", "file:/_delta_log/_sidecars/x"],
)  # fmt: skip
def test_sidecars_are_plain_names(path: str) -> None:
    with pytest.raises(UnsafePathError):
        paths.sidecar_path(path, "/data/t")


def test_the_path_of_a_sidecar() -> None:
    found = f"_delta_log/_sidecars/{UUID}.parquet"
    for written in (f"{UUID}.parquet", f"/data/t/{found}", f"file:/data/t/{found}"):
        assert paths.sidecar_path(written, "/data/t") == found


@given(st.lists(st.text("ab.=/-,%: \n\\é_0\ud800", max_size=6), max_size=4))
def test_ordinary_paths_are_those_that_name_themselves(named: list[str]) -> None:
    ordinary = paths.are_ordinary(named)
    assert ordinary == all(paths._ORDINARY.fullmatch(path) for path in named)
    assert paths.are_ordinary([*named, *["a/b=1"] * 100, *named]) == ordinary == paths.are_ordinary(named * 100)
    if ordinary:
        assert [locate(path, [place_of("s3://bucket/table")]) for path in named] == [(0, path) for path in named]


@pytest.mark.parametrize(
    ("store", "path", "named"),
    [
        ("/data/a b", "p=ä%/x.parquet", "file:/data/a%20b/p=ä%25/x.parquet"),
        ("/", "x?#", "file:/x%3F%23"),
        ("/data", "", "file:/data"),
        ("s3://bucket/t", "p=1:2/x", "s3a://bucket/t/p=1:2/x"),
        ("s3a://bucket", "x", "s3a://bucket/x"),
        ("memory://name", "a/b", "memory://name/a/b"),
        ("gs://bucket/t", "\u2009x", "gs://bucket/t/%E2%80%89x"),
    ],
)
def test_absolute_paths_lead_back(store: str, path: str, named: str) -> None:
    assert absolute_path(store, path) == named
    if path:
        assert locate(named, [place_of("/other"), place_of(store)]) == (1, path)


@pytest.mark.parametrize(
    ("path", "logged"),
    [
        ("place=ä€😀/a b%.parquet", "place=ä€😀/a%20b%25.parquet"),
        ("p=x:y/#?", "p=x%3Ay/%23%3F"),
        ("no-break\u00a0space/\u0085/\u2028", "no-break%C2%A0space/%C2%85/%E2%80%A8"),
    ],
)
def test_paths_are_logged_as_javas_uri_spells_them(path: str, logged: str) -> None:
    """delta-spark's VACUUM compares paths as strings, and treats a file as unreferenced if the log spells its name
    differently."""
    assert paths.encode_path(path) == logged and urllib.parse.unquote(logged) == path
