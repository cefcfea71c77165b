"""The pages for browsers in a real browser, at two widths and in both themes, with a password and with links."""

from __future__ import annotations

import datetime
import decimal
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from deltalog import TransactionManager
from deltalog.server.settings import Settings
from deltalog.server.ui.settings import UiSettings
from tests.support.browser import Browser, assert_readable, assert_readable_everywhere
from tests.support.server.access import serving
from tests.unit.server.test_ui import HOSTILE, TOKEN

USUAL = ("tables/shop.orders/rows", "tables/shop.orders/diff")
PAGES = ("", "tables/shop.orders", *USUAL, "tables/shop.orders/history", "tables/shop.orders/check", "tables/shop.none",
         "tables/shop.orders/rows?version=99")  # fmt: skip
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a table of many kinds of columns."""
    place = tmp_path_factory.mktemp("ui")
    manager = TransactionManager(str(place / "c.db"))
    rows = pa.table(
        {
            "id": range(40),
            "what": [HOSTILE if n % 7 == 0 else None if n % 5 == 0 else f"order {n} {'long ' * n}" for n in range(40)],
            "at": [START + datetime.timedelta(hours=n) for n in range(40)],
            "price": [decimal.Decimal(n) / 4 for n in range(40)],
            "tags": [["x"] * (n % 4) for n in range(40)],
            "a_column_with_quite_a_long_name": [{"a": n, "b": "y" * (n * 9)} for n in range(40)],
        }
    )
    table = manager.create_table("shop.orders", str(place / "orders"), rows.schema, data=rows, description=HOSTILE)
    table.append(rows, user_metadata="a nightly load of the shop in the north " + "x" * 150)
    table.set_properties({"delta.appendOnly": "false"})
    table.update({"what": "'changed'"}, "id < 3")
    long = "shop.a_table_with_quite_a_long_name_of_the_customers_in_the_north"
    manager.create_table(long, str(place / "long"), rows.schema)
    with serving(manager, Settings(token=TOKEN, ui=UiSettings(enabled=True, rows=12))) as server:
        where = urllib.parse.urlsplit(server.url)
        yield f"{where.scheme}://me:{TOKEN}@{where.netloc}/ui/"


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in USUAL else pytest.mark.long) for page in PAGES]
)
def test_every_page_can_be_read(browser: Browser, address: str, page: str, tmp_path: Path) -> None:
    with browser.tab() as tab:
        tab.open(address + page)
        tab.forget()  # that the first request had no password, and that a page does not exist
        assert_readable_everywhere(tab, page, tmp_path)
        assert tab.run("[document.scripts.length, document.images.length]") == [0, 0]


@pytest.mark.long
def test_the_timeline_runs_on_the_server(browser: Browser, address: str) -> None:
    with browser.tab(400) as tab:
        tab.open(f"{address}tables/shop.orders/timeline")
        assert [each for each in tab.problems() if "401" not in each] == []
        assert tab.run("document.querySelectorAll('tbody tr').length") == 4
        assert_readable(tab.measured(), "timeline")


def test_links_and_forms_lead_through_a_table(browser: Browser, address: str) -> None:
    with browser.tab() as tab:
        tab.open(address)
        tab.follow("a[href$='shop.orders']")
        assert tab.run("document.querySelector('h1').textContent") == "shop.orders"
        tab.follow("nav a[href$=rows]")
        assert "The first 12 rows of version 3." in tab.run("document.body.innerText")
        tab.run("document.querySelector('[name=version]').value = '0'")
        tab.follow("form button")
        assert "The first 12 rows of version 0." in tab.run("document.body.innerText")
        assert tab.run("[...new FormData(document.querySelector('form'))]") == [["version", "0"], ["at", ""]]
        tab.follow("nav a[href$=history]")
        tab.follow("a[href*='from=2']")
        text = tab.run("document.body.innerText")
        assert "changed" in text and "unchanged" in text
        tab.follow(".trail a")
        assert tab.run("location.pathname") == "/ui/"
        assert [each for each in tab.problems() if "401" not in each] == []


@pytest.mark.long
def test_without_a_password_nothing_is_shown(browser: Browser, address: str) -> None:
    with browser.tab() as tab:
        tab.headers({"Authorization": "Basic d3Jvbmc6d3Jvbmc="})
        tab.open(address.replace(f"me:{TOKEN}@", "") + "tables/shop.orders")
        assert "order" not in tab.run("document.body.innerText").replace("shop.orders", "")
