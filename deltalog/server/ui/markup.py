"""HTML from text: every child and attribute that is not markup is escaped."""

from __future__ import annotations

import html
import itertools
import urllib.parse
from collections.abc import Iterable, Iterator

from deltalog.presentation.text import visible

_VOID = frozenset({"input", "meta", "link"})


class Html(str):
    """Markup."""

    __slots__ = ()


Child = str | None
"""Text, or Html, which is not escaped; None is left out."""


def text(value: str) -> Html:
    """The text as markup."""
    return value if isinstance(value, Html) else Html(html.escape(visible(value)))


def joined(children: Iterable[Child]) -> Html:
    return Html("".join(text(each) for each in children if each is not None))


def tag(name: str, /, *children: Child, **attributes: str | None) -> Html:
    """An element. A final underscore of an attribute's name is left out, and other underscores become hyphens; an
    attribute with the value None is left out."""
    given = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{joined(children)}</{name}>")


def link(label: Child, address: str, /, **attributes: str | None) -> Html:
    """A link to a page of this server. ``address``: as ``address_of`` returns it."""
    return tag("a", label, href=address, **attributes)


def address_of(*segments: str, **query: str | int | None) -> str:
    """The address of a page below /ui, with the parameters that are not None."""
    path = "/".join(urllib.parse.quote(each, safe="") for each in segments)
    given = urllib.parse.urlencode({key.removesuffix("_"): value for key, value in query.items() if value is not None})
    return f"/ui/{path}{'?' if given else ''}{given}"


def address_of_table(name: str, tab: str, /, **query: str | int | None) -> str:
    """The address of a page of a table; an empty ``tab`` is the first one."""
    return address_of("tables", name, *([tab] if tab else []), **query)


def rows_of(headings: Iterable[Child], rows: Iterable[Iterable[Child]], **attributes: str | None) -> Html:
    """A table. What is wider than the page is scrolled in its frame. Each cell names its column, so that small screens
    can show a row as lines."""
    names = list(headings)
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in names))) if names else None
    body = tag("tbody", *(tag("tr", *_cells(names, row)) for row in rows))
    return tag("div", tag("table", head, body, **attributes), class_="scroll", tabindex="0", role="group")


def _cells(names: list[Child], row: Iterable[Child]) -> Iterator[Html]:
    for name, each in itertools.zip_longest(names, row):
        yield tag("td", each, data_column=name or None)


def facts_of(facts: Iterable[tuple[str, Child]]) -> Html:
    """A list of names and values; those whose value is None are left out."""
    pairs = [(name, value) for name, value in facts if value is not None]
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="facts")
