"""The sections of PROTOCOL.md: its headings in order, with the anchors that GitHub generates."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

HEADINGS = Path(__file__).resolve().parents[1] / "house" / "protocol_headings.txt"
URL = "https://github.com/delta-io/delta/blob/master/PROTOCOL.md"


@dataclass(frozen=True)
class Section:
    """A section. ``level``: 1 for a chapter. ``chapter``: the anchor of the level 1 section that contains this section,
    or of this section itself if it has level 1."""

    anchor: str
    title: str
    level: int
    chapter: str

    @property
    def url(self) -> str:
        return f"{URL}#{self.anchor}"


def sections() -> tuple[Section, ...]:
    """All sections, in the order of the document."""
    found: list[Section] = []
    before: Counter[str] = Counter()
    chapter = ""
    for line in HEADINGS.read_text(encoding="utf-8").splitlines():
        marks, _, title = line.partition(" ")
        anchor = re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")
        before[anchor] += 1
        if before[anchor] > 1:
            anchor = f"{anchor}-{before[anchor] - 1}"
        chapter = anchor if len(marks) == 1 else chapter
        found.append(Section(anchor, title.strip(), len(marks), chapter))
    return tuple(found)


ANCHORS = frozenset(section.anchor for section in sections())
_REFERENCE = re.compile(r"Spec: PROTOCOL\.md(.*?)(?:\.\s|\.$|\.\"|$)", re.S)


def named_in(source: str) -> list[str]:
    """The distinct anchors in a module's lines ``Spec: PROTOCOL.md#…``, in order."""
    found = (re.findall(r"#([A-Za-z0-9_-]+)", reference) for reference in _REFERENCE.findall(source))
    return list(dict.fromkeys(anchor for anchors in found for anchor in anchors))
