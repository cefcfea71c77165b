"""Does everything for a release up to the upload, and prints the command for that.

    python3 dev.py release             all steps; the order is that of docs/releasing.md
    python3 dev.py release build       some of them: tree, build, audit, sbom
    python3 dev.py release changes     prints the section of the changelog for this version

The steps end up in dist/: the wheel, the source distribution and the bill of materials. A step that fails does not stop
the others; the exit status is 1 then, and no command is printed.
"""

from __future__ import annotations

import atexit
import datetime
import email
import email.message
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PACKAGES = ("deltalog", "spark_ext")
CHANGES = re.compile(r"^## (?P<title>.*)$", re.M)
RELEASED = re.compile(r"(?P<version>\d+\.\d+\.\d+) \((?P<date>\d{4}-\d{2}-\d{2})\)")
# Suffixes of files that belong into a distribution, besides those of Python.
DATA = {".css", ".html", ".js", ".java", ".typed"}
# What may be in a source distribution besides the packages.
BESIDES = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "SECURITY.md", "pyproject.toml"}

# The audited environment has these extras: what users install, without tests and the demo.
AUDITED = "all"
# Licences that allow what Apache-2.0 allows. Names as in the metadata of packages, in lower case, in parts: an
# expression or a classifier has one of these, or several with "or" or "and".
ALLOWED = (
    *("apache-2.0", "apache license 2.0", "apache license, version 2.0", "apache software license", "apache 2.0"),
    *("apache license", "apache", "apache-2.0 with llvm-exception"),
    *("mit", "mit license", "mit-0", "mit-cmu", "hpnd", "bsd", "bsd license", "bsd-2-clause", "bsd-3-clause"),
    *("3-clause bsd license", "0bsd", "isc", "isc license (iscl)", "psf-2.0", "python software foundation license"),
    *("psfl", "zlib", "unlicense", "cc0-1.0", "the unlicense (unlicense)"),
)  # fmt: skip
# Packages with other licences, each with the reason why deltalog may depend on it.
EXCEPTIONS = {
    "certifi": "MPL-2.0 covers its list of certificates; unchanged files may be used with any licence.",
    "psycopg": "LGPL-3.0; an optional dependency that is imported, neither changed nor distributed with deltalog.",
    "psycopg-binary": "LGPL-3.0, as psycopg.",
}
# Known vulnerabilities that do not affect deltalog: identifier and reason.
NOT_AFFECTED: dict[str, str] = {}

LICENCES_PROGRAM = """
import importlib.metadata as packages, json
print(json.dumps({
    each.metadata["Name"]: [
        each.metadata.get("License-Expression") or "",
        *(name.rpartition(" :: ")[2] for name in each.metadata.get_all("Classifier") or () if name[:7] == "License"),
        (each.metadata.get("License") or "").strip().partition(chr(10))[0],
    ]
    for each in packages.distributions()
}))
"""


class Failure(Exception):
    """A step failed; the text says why."""


def main(arguments: list[str]) -> int:
    steps: dict[str, Callable[[], str]] = {"tree": check_tree, "build": build, "audit": audit, "sbom": write_sbom}
    if sys.version_info < (3, 11) or not {*arguments} <= {*steps, "changes"}:
        print(f"{__doc__}\nPython 3.11 or newer is needed.", file=sys.stderr)
        return 2
    if arguments == ["changes"]:
        print(changes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version()))
        return 0
    failed = []
    for name in arguments or steps:
        try:
            print(f"{name}: {steps[name]()}", flush=True)
        except Failure as failure:
            failed.append(name)
            print(f"{name}: FAILED: {failure}", flush=True)
    if failed:
        print(f"Not ready: {', '.join(failed)}.")
        return 1
    if not arguments:
        names = " ".join(f"dist/{path.name}" for path in distributions())
        print(
            f"Ready. Push the tag, upon which .github/workflows/release.yml uploads:\n\n"
            f"    git tag --sign v{version()} && git push origin v{version()}\n\n"
            f"Without the workflow:\n\n    twine upload {names}"
        )
    return 0


# ------------------------------------------------------------------------------------------------------------- steps


def check_tree() -> str:
    """The tree is committed, and its version is that of the changelog and of CITATION.cff."""
    wrong = list(wrong_versions(ROOT, version()))
    if changed := run("git", "status", "--porcelain").splitlines():
        wrong.append(f"{len(changed)} files are not committed")
    tagged = run("git", "tag", "--list", f"v{version()}") and run("git", "rev-list", "--max-count=1", f"v{version()}")
    if tagged and tagged != run("git", "rev-parse", "HEAD"):
        wrong.append(f"the tag v{version()} exists already, at another commit")
    if wrong:
        raise Failure("; ".join(wrong))
    return f"version {version()}"


def build() -> str:
    """Build both distributions, in an environment of their own, and check what is in them and their metadata."""
    shutil.rmtree(DIST, ignore_errors=True)
    python("build", "--outdir", str(DIST), str(ROOT))
    wheel, source = distributions()
    wrong = [*wrong_contents(wheel), *wrong_contents(source), *wrong_metadata(metadata_of(wheel))]
    if wrong:
        raise Failure("; ".join(wrong))
    python("twine", "check", "--strict", str(wheel), str(source))
    return f"{wheel.name} ({kib(wheel)} KiB), {source.name} ({kib(source)} KiB)"


def audit() -> str:
    """The code by bandit; the dependencies by pip-audit, and their licences."""
    python("bandit", "--quiet", "--configfile", "pyproject.toml", "--recursive", *PACKAGES)
    interpreter = installed()
    ignored = [argument for name in NOT_AFFECTED for argument in ("--ignore-vuln", name)]
    paths = json.loads(run(interpreter, "-c", "import json, site; print(json.dumps(site.getsitepackages()))"))
    audited = python("pip_audit", "--progress-spinner", "off", "--format", "json", *ignored, "--path", paths[0])
    found: dict[str, list[str]] = json.loads(run(interpreter, "-c", LICENCES_PROGRAM))
    if wrong := [*not_audited(json.loads(audited)), *wrong_licences(found)]:
        raise Failure("; ".join(wrong))
    return f"bandit, pip-audit, and the licences of {len(found)} packages"


def write_sbom() -> str:
    """The packages that deltalog[all] installs, in the format CycloneDX."""
    DIST.mkdir(exist_ok=True)
    file = DIST / f"deltalog-{version()}.cdx.json"
    interpreter = installed()
    run(interpreter, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools")
    python(
        "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", "pyproject.toml",
        "--mc-type", "library", "--output-file", str(file), interpreter,
    )  # fmt: skip
    components = json.loads(file.read_text(encoding="utf-8"))["components"]
    return f"{file.name} with {len(components)} packages"


# ------------------------------------------------------------------------------------------------------------ checks


def version(root: Path = ROOT) -> str:
    text = (root / "deltalog" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^VERSION = "([^"]+)"$', text, re.M)
    assert found is not None
    return found[1]


def wrong_versions(root: Path, released: str) -> Iterable[str]:
    """Why the files of a tree do not describe this release."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", released):
        yield f"deltalog/version.py: {released} is not of the form 1.2.3"
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    titles = [*CHANGES.finditer(changes)]
    if not titles or titles[0]["title"] != "Unreleased":
        yield "CHANGELOG.md: the first section is not 'Unreleased'"
    elif changes[titles[0].end() : titles[1].start() if len(titles) > 1 else None].strip():
        yield f"CHANGELOG.md: move what is under 'Unreleased' to a section '{released} ({datetime.date.today()})'"
    newest = RELEASED.fullmatch(titles[1]["title"]) if len(titles) > 1 else None
    if newest is None or newest["version"] != released:
        yield f"CHANGELOG.md: the second section is not '{released} (date)'"
    cited = (root / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {released}\n" not in cited:
        yield f"CITATION.cff: the version is not {released}"
    if newest is not None and f"\ndate-released: {newest['date']}\n" not in cited:
        yield f"CITATION.cff: date-released is not {newest['date']}"


def changes_of(changelog: str, released: str) -> str:
    """The section of a version, without its title."""
    titles = [*CHANGES.finditer(changelog)]
    for number, title in enumerate(titles):
        if title["title"].startswith(f"{released} ("):
            return changelog[title.end() : titles[number + 1].start() if number + 1 < len(titles) else None].strip()
    raise SystemExit(f"CHANGELOG.md has no section for {released}.")


def names_in(distribution: Path) -> list[str]:
    """The files in a distribution; in a source distribution, without its directory."""
    if distribution.suffix == ".whl":
        with zipfile.ZipFile(distribution) as wheel:
            return wheel.namelist()
    with tarfile.open(distribution) as source:
        return [name.partition("/")[2] for name in source.getnames()]


def wrong_contents(distribution: Path) -> Iterable[str]:
    """What is missing in a distribution, and what does not belong into it."""
    names = names_in(distribution)
    is_wheel = distribution.suffix == ".whl"
    wanted = {f"{package}/{name}" for package in PACKAGES for name in ("py.typed", "__init__.py")}
    wanted |= {"deltalog/presentation/page/timeline.html", *(() if is_wheel else BESIDES)}
    for name in sorted(wanted.difference(names)):
        yield f"{distribution.name}: {name} is missing"
    if is_wheel and not any(re.fullmatch(r"deltalog-[^/]+\.dist-info/licenses/LICENSE", name) for name in names):
        yield f"{distribution.name}: the licence is missing"
    for name in names:
        top, suffix = name.partition("/")[0], Path(name).suffix
        is_metadata = top.endswith(".dist-info") if is_wheel else name in BESIDES
        if not (is_metadata or (top in PACKAGES and (suffix == ".py" or suffix in DATA))):
            yield f"{distribution.name}: {name} does not belong into it"


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(file.read(name))


def wrong_metadata(metadata: Mapping[str, Any] | email.message.Message) -> Iterable[str]:
    """What the page on a package index would not show as it should."""
    assert isinstance(metadata, email.message.Message)
    urls = {label for label, _, _ in (each.partition(", ") for each in metadata.get_all("Project-URL", []))}
    for label in sorted({"Homepage", "Documentation", "Repository", "Issues", "Changelog"} - urls):
        yield f"the project has no URL {label}"
    text = str(metadata.get_payload())
    for link in re.findall(r"\]\(\s*([^)\s]+)", text):
        if not re.match(r"https?://|#", link):
            yield f"the description has the relative link {link}"
    for name in ("License-Expression", "Requires-Python", "Summary"):
        if not metadata[name]:
            yield f"the metadata has no {name}"


def not_audited(answer: Mapping[str, Any]) -> Iterable[str]:
    """Packages about which pip-audit could not ask: it ends with 0 nevertheless. deltalog itself is not asked about
    before its first release."""
    names = [each["name"] for each in answer["dependencies"] if "skip_reason" in each and each["name"] != "deltalog"]
    if names:
        yield f"the index does not say whether {len(names)} packages are vulnerable: {', '.join(names)}"


def wrong_licences(found: Mapping[str, list[str]]) -> Iterable[str]:
    """``found``: for each package what it says of its licence, in the order in which this is trusted."""
    for name, said in sorted(found.items()):
        first = next((text for text in said if text), "")
        parts = re.split(r"\s+(?:OR|AND)\s+|\s*[;/]\s*", first, flags=re.IGNORECASE)
        normal = re.sub(r"[-_.]+", "-", name).lower()
        is_known = bool(first) and all(part.lower() in ALLOWED for part in parts)
        if normal not in ("deltalog", *EXCEPTIONS) and not is_known:
            yield f"{name} has the licence {first[:80] or 'unknown'!r}"


# ------------------------------------------------------------------------------------------------------------- tools


def distributions() -> tuple[Path, Path]:
    """The wheel and the source distribution in dist/."""
    found = [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]
    if [path.suffix for path in found] != [".whl", ".gz"]:
        raise Failure("dist/ has no single wheel and source distribution; run the step build")
    return found[0], found[1]


@functools.cache
def installed() -> str:
    """The Python of a new environment with the wheel and what it needs, which is deleted when this program ends."""
    place = tempfile.TemporaryDirectory()
    atexit.register(place.cleanup)
    venv.create(place.name, with_pip=True)
    interpreter = str(Path(place.name) / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    wanted = f"deltalog[{AUDITED}] @ {distributions()[0].as_uri()}"
    run(interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", wanted)
    return interpreter


def python(module: str, *arguments: str) -> str:
    return run(sys.executable, "-m", module, *arguments)


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise Failure(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{said[-4000:]}")
    return done.stdout.strip()


def kib(path: Path) -> int:
    return -(-path.stat().st_size // 1024)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
