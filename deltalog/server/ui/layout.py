"""The frame of a page, its security headers, and pages that report errors."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from deltalog.server.answers import Answer, Document
from deltalog.server.ui.markup import Child, Html, address_of, address_of_table, link, tag
from deltalog.version import VERSION

_STYLE = Html(resources.files("deltalog.server.ui").joinpath("style.css").read_text(encoding="utf-8"))
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'"
TABS = (
    ("Columns", ""), ("Rows", "rows"), ("History", "history"), ("Timeline", "timeline"), ("Diff", "diff"),
    ("Check", "check"),
)  # fmt: skip
_TITLES = {401: "Who are you?", 403: "Not permitted", 404: "Not found", 429: "Too many requests"}


def document(html: str, policy: str = POLICY) -> Document:
    """The body of a response. No other page can embed it or read it."""
    headers = {
        "content-security-policy": f"{policy}; frame-ancestors 'none'",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return Document(html, headers)


def page(title: str, *sections: Child, trail: Sequence[Child] = (), above: Child = None) -> Document:
    """A page. ``trail``: the pages above this one. ``above``: what stands between the title and the sections."""
    crumbs = [each for part in trail for each in (part, " / ")]
    body = tag(
        "main",
        tag("header", tag("p", *crumbs, class_="trail") if crumbs else None, tag("h1", title)),
        above,
        *sections,
        tag("footer", f"deltalog {VERSION} · read-only · all times in UTC"),
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title} · deltalog"),
        tag("style", _STYLE),
    )
    return document("<!doctype html>\n" + tag("html", head, tag("body", body), lang="en"))


def table_page(name: str, tab: str, *sections: Child) -> Document:
    """A page of a table. ``tab``: which of TABS it is."""
    links = [
        link(label, address_of_table(name, path), aria_current="page" if path == tab else None) for label, path in TABS
    ]
    tabs = tag("nav", *links, aria_label="Pages of the table")
    return page(name, *sections, trail=[link("Tables", address_of(""))], above=tabs)


def refused(answer: Answer, is_unauthorized: bool) -> Answer:
    """The page for a response that reports an error. A browser asks for a name and a password if the caller has not
    proved who they are; the password is the token."""
    given: Mapping[str, Any] = answer.body
    message = given.get("message") or given.get("Message") or ""
    headers = {name: value for name, value in answer.headers.items() if name != "www-authenticate"}
    if is_unauthorized:
        headers["www-authenticate"] = 'Basic realm="deltalog", charset="UTF-8"'
        message = "Reload the page, and give a token of this server as the password, with any user name."
    title = _TITLES.get(answer.status, "The server cannot show this page")
    body = page(title, tag("section", tag("p", str(message))), trail=[link("Tables", address_of(""))])
    return Answer(answer.status, body, answer.error, headers)
