from __future__ import annotations

import pytest

from deltalog import CallError
from deltalog.protocol.column_paths import parse_path, path_text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b c.d", ("a", "b c", "d")),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b``c`", ("a", "b`c")),
        ("ä.`.`", ("ä", ".")),
    ],
)
def test_paths_and_their_text(text: str, path: tuple[str, ...]) -> None:
    assert parse_path(text) == path
    assert parse_path(path_text(path)) == path
    assert parse_path(list(path)) == path


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "`a", "a`b", "`a`b", "``", "a.``"])
def test_what_is_no_path(text: str) -> None:
    with pytest.raises(CallError, match="not the path"):
        parse_path(text)
