"""Modules that are imported at their first use."""

from __future__ import annotations

import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deltalog.errors import StoreError
from deltalog.lazy_names import lazy_modules


@pytest.fixture
def importer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A module without globals; ``later_a``, ``later_b`` and ``later_broken`` can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "later_a.py").write_text("VALUE = []\nimport later_b\n")
    (tmp_path / "later_b.py").write_text("VALUE = 2\n")
    (tmp_path / "later_broken.py").write_text("raise RuntimeError('not today')\n")
    module = types.ModuleType("an_importer")
    monkeypatch.setitem(sys.modules, "an_importer", module)
    yield module
    for name in ("later_a", "later_b", "later_broken"):
        sys.modules.pop(name, None)


def test_a_module_is_imported_at_its_first_use_and_then_stands_for_itself(importer) -> None:
    lazy_modules("an_importer", "later_a", other="later_b")
    assert "later_a" not in sys.modules and "later_b" not in sys.modules
    value = importer.later_a.VALUE
    assert importer.later_a is sys.modules["later_a"] and importer.later_a.VALUE is value
    assert type(importer.other) is not type(sys), "imported by another module, not used here"
    assert importer.other.VALUE == 2 and importer.other is sys.modules["later_b"]


def test_what_stands_for_a_module_passes_on_assignments_and_its_names(importer) -> None:
    lazy_modules("an_importer", "later_b")
    held = importer.later_b
    held.VALUE = 3
    assert sys.modules["later_b"].VALUE == held.VALUE == 3
    assert "VALUE" in dir(held)


def test_a_name_that_the_module_lacks_is_an_attribute_error(importer) -> None:
    lazy_modules("an_importer", "later_b")
    with pytest.raises(AttributeError, match="later_b"):
        _ = importer.later_b.absent


def test_an_import_that_fails_raises_its_error_at_each_use(importer) -> None:
    lazy_modules("an_importer", "later_broken")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not today"):
            _ = importer.later_broken.VALUE


def test_a_library_that_cannot_be_opened_is_a_store_error(importer, tmp_path: Path) -> None:
    (tmp_path / "later_library.py").write_text("raise ImportError('libarrow.so: cannot open: Too many open files')\n")
    lazy_modules("an_importer", "later_library", absent="later_absent")
    with pytest.raises(StoreError, match=r"later_library cannot be loaded: libarrow\.so.*Nothing was changed"):
        _ = importer.later_library.VALUE
    with pytest.raises(ModuleNotFoundError, match="later_absent"):
        _ = importer.absent.VALUE


def test_a_global_that_was_replaced_stays(importer) -> None:
    lazy_modules("an_importer", "later_b")
    held, importer.later_b = importer.later_b, "replaced"
    assert held.VALUE == 2 and importer.later_b == "replaced"


def test_threads_may_use_a_module_first_at_once(importer) -> None:
    lazy_modules("an_importer", "later_a")
    held = importer.later_a
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda _: held.VALUE, range(64)))
    assert all(value is values[0] for value in values)
