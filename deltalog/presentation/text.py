"""Text for people: texts of a log with their control characters escaped, numbers, sizes and durations. Pure."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """The text with control characters and bidirectional overrides escaped, for example as ``\\x1b``."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else char.encode("unicode_escape").decode() for char in text)


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def count(number: int) -> str:
    """12,345."""
    return f"{number:,}"


def plural(number: int, one: str) -> str:
    """1 file, 2 files."""
    return f"{count(number)} {one}" if number == 1 else f"{count(number)} {one}s"


def bytes_text(size: int) -> str:
    """1.4 MB, by powers of 1000."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(value) < 999.5 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 99.5 else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the loop returns")


def drift_text(drift_ms: int) -> str:
    """A signed duration in a suitable unit: +3 ms, −284.0 d."""
    sign = "−" if drift_ms < 0 else "+"
    size = abs(drift_ms)
    if size < 1000:
        return f"{sign}{size} ms" if size else "0 ms"
    for factor, unit, until in ((1000, "s", 120_000), (60_000, "min", 7_200_000), (3_600_000, "h", 172_800_000)):
        if size < until:
            return f"{sign}{size / factor:.1f} {unit}"
    return f"{sign}{size / 86_400_000:,.1f} d"


def span_text(span_ms: int) -> str:
    """A duration without sign."""
    return drift_text(abs(span_ms)).lstrip("+")
