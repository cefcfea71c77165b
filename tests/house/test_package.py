"""The distributions: what is in them, how their page looks on a package index, and that the first calls work after an
installation."""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.scripts import script

ROOT = Path(__file__).resolve().parents[2]
# The places that name the address of the repository.
ADDRESS = re.compile(r"https://github\.com/[\w.-]+/deltalog\b")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return script("scripts/release.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel and the source distribution."""
    for name in ("hatchling", "hatch_fancy_pypi_readme"):
        pytest.importorskip(name)
    place = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(place)],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(place.iterdir(), key=lambda path: path.suffix, reverse=True)


def test_the_distributions_have_the_packages_and_nothing_else(release: ModuleType, built: list[Path]) -> None:
    wheel, source = built
    assert [wheel.suffix, source.suffix] == [".whl", ".gz"]
    assert [*release.wrong_contents(wheel), *release.wrong_contents(source)] == []
    of_packages = {
        str(path.relative_to(ROOT))
        for package in release.PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for distribution in built:
        found = {name for name in release.names_in(distribution) if name.startswith(("deltalog/", "spark_ext/"))}
        assert found == of_packages


def test_what_does_not_belong_into_a_distribution_is_noticed(release: ModuleType, tmp_path: Path) -> None:
    wheel = tmp_path / "deltalog-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("deltalog/__init__.py", "deltalog/py.typed", "tests/test_x.py", "deltalog/rows.parquet"):
            file.writestr(name, "")
    found = [*release.wrong_contents(wheel)]
    assert [text for text in found if "does not belong" in text] == [
        f"{wheel.name}: tests/test_x.py does not belong into it",
        f"{wheel.name}: deltalog/rows.parquet does not belong into it",
    ]
    assert any("spark_ext/py.typed is missing" in text for text in found)
    assert any("the licence is missing" in text for text in found)


def test_the_page_on_a_package_index(release: ModuleType, built: list[Path]) -> None:
    markdown = pytest.importorskip("readme_renderer.markdown")
    metadata = release.metadata_of(built[0])
    assert [*release.wrong_metadata(metadata)] == []
    text = str(metadata.get_payload())
    shown = markdown.render(text)
    assert shown is not None and all(f"<{tag}" in shown for tag in ("h1", "h2", "table", "pre", "code"))
    assert "```" not in shown and "](" not in shown and "| ---" not in shown
    # Links to files of the repository lead to those of the release.
    version = metadata["Version"]
    files = re.findall(r"\]\(https://github\.com/deltalog/deltalog/blob/v([^/]+)/([^)#]+)", text)
    assert files and {(release.version(), True)} == {(tag, (ROOT / name).exists()) for tag, name in files}
    assert version == release.version()


def test_a_page_that_would_not_show_is_noticed(release: ModuleType) -> None:
    text = "Summary: x\nProject-URL: Homepage, https://x\n\n[a](docs/a.md) [b](#b) [c](https://c)\n"
    found = [*release.wrong_metadata(email.message_from_string(text))]
    assert "the description has the relative link docs/a.md" in found
    assert "the project has no URL Issues" in found and "the metadata has no License-Expression" in found
    assert not any("#b" in each or "https://c" in each or "Homepage" in each for each in found)


def test_relative_links_of_the_readme_lead_to_files() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s#]+)", text) if not re.match(r"https?:", link)]
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_address_of_the_repository_is_the_same_everywhere() -> None:
    [said] = set(ADDRESS.findall((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [
        name for name in listed.split("\0") if name.endswith((".md", ".yml", ".yaml", ".toml", ".cff", ".json", ".py"))
    ]
    other = {
        name: found
        for name in names
        if (ROOT / name).exists() and (found := {*ADDRESS.findall((ROOT / name).read_text(encoding="utf-8"))} - {said})
    }
    assert other == {}


# ---------------------------------------------------------------------------------------------------------- releases


def tree(place: Path, version: str, changes: str, citation: str = "") -> Path:
    (place / "deltalog").mkdir()
    (place / "deltalog" / "version.py").write_text(f'VERSION = "{version}"\n')
    (place / "CHANGELOG.md").write_text(f"# Changelog\n\n{changes}")
    (place / "CITATION.cff").write_text(
        citation or f"cff-version: 1.2.0\nversion: {version}\ndate-released: 2026-12-01\n"
    )
    return place


def test_a_tree_that_is_ready(release: ModuleType, tmp_path: Path) -> None:
    tree(tmp_path, "1.2.3", "## Unreleased\n\n## 1.2.3 (2026-12-01)\n\n- A change.\n")
    assert release.version(tmp_path) == "1.2.3"
    assert [*release.wrong_versions(tmp_path, "1.2.3")] == []


@pytest.mark.parametrize(
    ("version", "changes", "citation", "wrong"),
    [
        ("1.2", "## Unreleased\n\n## 1.2 (2026-12-01)\n", "", "not of the form 1.2.3"),
        ("1.2.3", "## 1.2.3 (2026-12-01)\n", "", "first section is not 'Unreleased'"),
        ("1.2.3", "## Unreleased\n\n- A change.\n\n## 1.2.2 (2026-11-01)\n", "", "move what is under 'Unreleased'"),
        ("1.2.3", "## Unreleased\n\n## 1.2.2 (2026-12-01)\n", "", "second section is not '1.2.3 (date)'"),
        ("1.2.3", "## Unreleased\n\n## 1.2.3 (2026-12-01)\n", "\nversion: 1.2.2\n", "version is not 1.2.3"),
        ("1.2.3", "## Unreleased\n\n## 1.2.3 (2026-12-02)\n", "", "date-released is not 2026-12-02"),
        ("1.2.3", "## Unreleased\n", "", "second section is not"),
    ],
)  # fmt: skip
def test_a_tree_that_is_not_ready(
    release: ModuleType, tmp_path: Path, version: str, changes: str, citation: str, wrong: str
) -> None:
    tree(tmp_path, version, changes, citation)
    assert any(wrong in each for each in release.wrong_versions(tmp_path, version))


def test_the_changelog_has_the_form_that_a_release_needs(release: ModuleType) -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *others = [match["title"] for match in release.CHANGES.finditer(text)]
    assert first == "Unreleased"
    found = [release.RELEASED.fullmatch(title) for title in others]
    assert all(found), others
    versions = [tuple(map(int, match["version"].split("."))) for match in found if match]
    assert versions == sorted(versions, reverse=True)
    assert f"\nversion: {release.version()}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_changes_of_a_version(release: ModuleType) -> None:
    text = "# C\n\n## Unreleased\n\n## 1.2.3 (2026-12-01)\n\n- A.\n- B.\n\n## 1.2.2 (2026-11-01)\n\n- C.\n"
    assert release.changes_of(text, "1.2.3") == "- A.\n- B." and release.changes_of(text, "1.2.2") == "- C."
    with pytest.raises(SystemExit):
        release.changes_of(text, "1.2")


def test_licences(release: ModuleType) -> None:
    found = {
        "a": ["MIT", "", ""],
        "b": ["", "Apache Software License", "Apache"],
        "c": ["Apache-2.0 OR BSD-2-Clause", ""],
        "shellingham": ["", "ISC License (ISCL)"],
        "psycopg": ["LGPL-3.0-only"],
        "psycopg_binary": ["LGPL-3.0-only"],
        "deltalog": ["Apache-2.0"],
    }
    assert [*release.wrong_licences(found)] == []
    wrong = [*release.wrong_licences({"x": ["GPL-3.0"], "y": ["", ""], "z": ["MIT AND GPL-2.0"]})]
    assert [each.split()[0] for each in wrong] == ["x", "y", "z"] and "unknown" in wrong[1]


def test_packages_that_could_not_be_audited_are_noticed(release: ModuleType) -> None:
    asked = {"name": "msgspec", "version": "0.22", "vulns": []}
    own, skipped = ({"name": name, "skip_reason": "not found"} for name in ("deltalog", "pyarrow"))
    assert [*release.not_audited({"dependencies": [asked, own]})] == []
    [said] = release.not_audited({"dependencies": [asked, own, skipped]})
    assert "1 packages are vulnerable: pyarrow" in said


def test_exceptions_have_reasons(release: ModuleType) -> None:
    assert all(len(reason) > 15 for reason in (*release.EXCEPTIONS.values(), *release.NOT_AFFECTED.values()))


# ---------------------------------------------------------------------------------------------------------- installs


def test_pythons_are_found_by_their_version() -> None:
    installs = script("scripts/installs.py")
    name = ".".join(map(str, sys.version_info[:2]))
    found = installs.python_of(name)
    assert found is None or Path(found).exists()
    assert installs.python_of("2.0") is None
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert [*installs.PYTHONS] == classified


def test_the_lowest_versions_of_an_installation() -> None:
    installs, dev = script("scripts/installs.py"), script("dev.py")
    assert installs.lowest_versions("3.10") == dev.lowest_versions(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )
    assert "pyarrow==22.0.0" in installs.lowest_versions("3.14")


@pytest.mark.long  # installs packages from the index
@pytest.mark.parametrize("which", ["lowest", "newest"])
def test_the_first_calls_after_an_installation(built: list[Path], which: str) -> None:
    installs = script("scripts/installs.py")
    name = ".".join(map(str, sys.version_info[:2]))
    constraints = installs.lowest_versions(name) if which == "lowest" else []
    with installs.Environment(sys.executable, built[0], "deltalog[cli]", constraints) as environment:
        assert "the first calls work" in environment.run(str(installs.PROGRAM))


def test_the_page_of_sizes_has_a_row_for_each_installation() -> None:
    installs = script("scripts/installs.py")
    rows = re.findall(r"^\| `(deltalog[^`]*)`", installs.PAGE.read_text(encoding="utf-8"), re.M)
    assert rows == [*installs.SIZED]


@pytest.mark.long  # runs bandit over both packages
def test_bandit_finds_nothing() -> None:
    pytest.importorskip("bandit")
    done = subprocess.run(
        [sys.executable, "-m", "bandit", "-f", "json", "-q", "-c", "pyproject.toml", "-r", "deltalog", "spark_ext"],
        cwd=ROOT, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert [
        f"{each['filename']}:{each['line_number']}: {each['issue_text']}" for each in json.loads(done.stdout)["results"]
    ] == []
