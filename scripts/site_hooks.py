"""What the site does with the Markdown of the project, as a hook of MkDocs (mkdocs.yml).

- README.md, SECURITY.md, CONTRIBUTING.md and CHANGELOG.md are pages without a copy in docs/.
- A link to such a file, or into the project outside docs/, leads to the page or to the file in the repository that
  pyproject.toml names. Without a repository, the name of the file remains.
- An entry of the navigation that ends with a slash means all pages of the folder that are not listed elsewhere, so that
  a new page is never left out. The entry ``./`` means those of docs/ itself.
- A link whose text is the name of a file shows the title of the page.
- The names of errors in the reference are links to the catalogue of errors.
- A diagram becomes a part of its page, so that it has the colours of the page's theme and not those of the system.
- The marks of code blocks, such as ``no-run``, are for the tests and not for readers, except the name of a file.
"""

from __future__ import annotations

import functools
import html
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import mkdocstrings_handlers.python._internal.rendering as rendering
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
#: The pages in the root of the project, by their places on the site.
ROOT_PAGES = {
    "about.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
PLACES = {name: uri for uri, name in ROOT_PAGES.items()}
# Tables of results, whose thousands of cells would hide everything else in a search.
NOT_SEARCHED = ("conformance-matrix.md", "conformance-cases.md", "authorisation-matrix.md", "conformance/reports/")

# A reader searches for a task first, and seldom for an earlier change.
BOOSTS = {"start/": 3.0, "how-to/": 3.0, "reference/": 0.6, "changelog.md": 0.2}

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w+-]*)(?P<marks>[^\n`]*)$", re.M)
BLOCK = re.compile(r"^( *)(```+)[^\n]*\n.*?^\1\2[ \t]*$", re.M | re.S)
LINK = re.compile(r"(?P<text>\[(?:[^\[\]]|\[[^\[\]]*\])*\])\((?P<target>[^)\s]+)\)")
DIAGRAM = re.compile(r"^!\[(?P<alt>[^\]]*)\]\((?P<path>[\w./-]+\.svg)\)$", re.M)
FILE_NAME = re.compile(r"\[`?[\w./-]+\.md`?\]")
NAMED = re.compile(r"(?<![\[`])`(?P<path>(?:docs/[\w/.-]+|[A-Z]+)\.md)`(?!\])")
TAG = re.compile(r"(<[^>]+>)")
UNLINKED = frozenset({"a", "code", "h1", "h2", "h3", "h4", "h5", "pre"})
ERROR = re.compile(r"\b[A-Z]\w+Error\b")
NESTED = re.compile(r"^  (?=[-*] )", re.M)
# Annotations name classes of the project through their modules: `snapshots.Snapshot`.
OTHER_PACKAGES = frozenset(
    {"pa", "pl", "ds", "pd", "np", "duckdb", "datetime", "polars", "pyarrow", "pandas", "pyspark"}
)
QUALIFIED = re.compile(r"(?<![\w.'\"])([a-z_]+)\.(?=[A-Z])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    # mkdocstrings would start a process of a formatter for each signature.
    assert callable(rendering._get_formatter)
    rendering._get_formatter = lambda: one_parameter_a_line
    # Not as `repo_url`, for which the theme asks the forge for the number of stars.
    config.extra["repository"] = source = repository()
    if source:
        config.extra["social"] = [{"icon": "simple/git", "link": source, "name": "Source"}]
    listed = set(_listed(config.nav))
    rank = {name: at for at, name in enumerate(config.extra["order"])}
    config.nav = _expanded(config.nav, Path(config.docs_dir), listed, rank)
    return config


def repository() -> str | None:
    """The repository that pyproject.toml names, without a slash at its end."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    named = {name.lower(): str(url) for name, url in urls.items()}
    found = next((named[name] for name in ("repository", "source", "source code") if name in named), None)
    return found.rstrip("/") if found else None


def one_parameter_a_line(code: str, line_length: int) -> str:
    """The code of a signature, ``def name(…) -> …: pass``, with a line for each parameter if one line is too short."""
    if not code.startswith("def "):
        return code
    code = QUALIFIED.sub(lambda found: found[0] if found[1] in OTHER_PACKAGES else "", code)
    if len(code) <= line_length:
        return code
    depth, quote, out = 0, "", list[str]()
    for at, character in enumerate(code):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
            if depth == 1 and character == "(" and code[at + 1] != ")":
                out.append("(\n    ")
                continue
        elif character in ")]}":
            depth -= 1
            if depth == 0 and character == ")" and out[-1] != "(":
                return "".join(out).rstrip(", ") + ",\n" + code[at:]
        elif character == "," and depth == 1:
            out.append(",\n   ")
            continue
        out.append(character)
    return code


def _listed(entry: Any) -> Iterator[str]:
    if isinstance(entry, dict):
        entry = list(entry.values())
    if isinstance(entry, list):
        for each in entry:
            yield from _listed(each)
    elif entry:
        yield entry


def _expanded(entry: Any, docs: Path, listed: set[str], rank: Mapping[str, int]) -> Any:
    """The navigation with the pages of each folder. ``rank``: the places of pages in their folder, by file name."""
    if isinstance(entry, dict):
        return {name: _expanded(value, docs, listed, rank) for name, value in entry.items()}
    if not isinstance(entry, list):
        return entry
    found: list[Any] = []
    for each in entry:
        if isinstance(each, str) and each.endswith("/"):
            pages = sorted((docs / each).glob("*.md"), key=lambda page: (rank.get(page.stem, len(rank)), page.stem))
            found += [name for page in pages if (name := page.relative_to(docs).as_posix()) not in listed]
        else:
            found.append(_expanded(each, docs, listed, rank))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for uri, name in ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.src_uri
    if source.startswith(NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    elif boost := next((value for start, value in BOOSTS.items() if source.startswith(start)), None):
        page.meta["search"] = {"boost": boost}
    known = {file.src_uri for file in files}
    folder = "" if source in ROOT_PAGES else posixpath.join("docs", posixpath.dirname(source))
    parts, end = [], 0
    for block in BLOCK.finditer(markdown):
        parts += [_prose(markdown[end : block.start()], folder, source, known, config), FENCE.sub(_plain, block[0])]
        end = block.end()
    return "".join([*parts, _prose(markdown[end:], folder, source, known, config)])


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if not page.file.src_uri.startswith("reference/"):
        return content
    known = error_names()
    parts, inside = TAG.split(content), list[str]()
    for at, part in enumerate(parts):
        if at % 2:
            name = part.strip("</>").split()[0]
            if name in UNLINKED:
                inside = inside[:-1] if part.startswith("</") else [*inside, name]
        elif not inside:
            parts[at] = ERROR.sub(lambda error: _error_link(error[0]) if error[0] in known else error[0], part)
    return "".join(parts)


@functools.cache
def error_names() -> frozenset[str]:
    """The classes in the catalogue of errors."""
    return frozenset(re.findall(r"^##+ (\w+Error)$", (ROOT / "docs/errors.md").read_text(encoding="utf-8"), re.M))


def _error_link(name: str) -> str:
    return f'<a href="../errors.html#{name.lower()}">{name}</a>'


def _plain(fence: re.Match[str]) -> str:
    file = re.search(r"\bfile=([\w.-]+)", fence["marks"])
    title = f' title="{file[1]}"' if file else ""
    return f"{fence['indent']}{fence['ticks']}{fence['language']}{title}"


def _prose(text: str, folder: str, source: str, known: set[str], config: MkDocsConfig) -> str:
    def linked(link: re.Match[str]) -> str:
        target = _target(link["target"], folder, source, known, config)
        if target is None:
            return link["text"][1:-1]
        return f"{_titled(link['text'], target, source)}({target})"

    def named(name: re.Match[str]) -> str:
        target = _target(name["path"], "", source, known, config)
        return f"{_titled(f'[{name[0]}]', target, source)}({target})" if target else name[0]

    def drawn(image: re.Match[str]) -> str:
        svg = (ROOT / folder / image["path"]).read_text(encoding="utf-8")
        label = html.escape(image["alt"])
        svg = svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
        return f'<figure class="diagram">{svg}</figure>'

    text = DIAGRAM.sub(drawn, text)
    text = LINK.sub(linked, NESTED.sub("    ", text))
    return NAMED.sub(named, text) if source in ROOT_PAGES else text


def _titled(text: str, target: str, source: str) -> str:
    """The text of a link. A text that is the name of a file becomes the title of the page, as readers of the site know
    no files."""
    if not FILE_NAME.fullmatch(text) or re.match(r"[a-z]+:", target):
        return text
    uri = posixpath.normpath(posixpath.join(posixpath.dirname(source), target.partition("#")[0]))
    return f"[{title(ROOT_PAGES.get(uri, f'docs/{uri}'))}]"


@functools.cache
def title(path: str) -> str:
    """The title of a page of the project."""
    found = re.search(r"^# (.+)$", (ROOT / path).read_text(encoding="utf-8"), re.M)
    return found[1] if found else path


def _target(target: str, folder: str, source: str, known: set[str], config: MkDocsConfig) -> str | None:
    """The target of a link as the site needs it; None if nothing of the site or of a repository is meant."""
    repository = config.extra["repository"]
    blob = f"{repository}/blob/main/"
    if repository and target.startswith(blob):
        target, folder = target.removeprefix(blob), ""
    elif re.match(r"[a-z]+:|#", target):
        return target
    path, mark, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(folder, path))
    uri = path.removeprefix("docs/") if path.startswith("docs/") else PLACES.get(path)
    if uri in known:
        return posixpath.relpath(uri, posixpath.dirname(source) or ".") + mark + anchor
    if not (ROOT / path).exists():
        return target  # MkDocs warns about it
    if not repository:
        return None
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{repository}/{kind}/main/{path}{mark}{anchor}"
