"""Imports modules on first use, so that importing a package loads only what is used: the package's public names, and
modules that another module needs only in some of its calls.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from deltalog.errors import StoreError


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` for a package. ``modules``: maps each public name to the module
    that defines it, and the name of each submodule to the submodule itself. ``__getattr__`` raises AttributeError for
    other names."""

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(modules[name])
        value = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return __getattr__, __dir__


def lazy_modules(importer: str, *modules: str, **renamed: str) -> None:
    """Set other modules as globals of the module ``importer``. Each module is imported when one of its names is first
    used.

    ``modules``: full names; the last part of each full name becomes the name of the global. ``renamed``: full names of
    modules, keyed by the name of the global. For type checkers, the block ``if TYPE_CHECKING`` contains the same
    imports; this call is in its ``else`` branch.

        if TYPE_CHECKING:
            from deltalog.rows import delete
        else:
            lazy_modules(__name__, "deltalog.rows.delete")

    At its first use, each placeholder is replaced by its module, so later uses cost nothing. Threads may use the
    globals concurrently. If an import fails, every use raises the import's error.
    """
    names = vars(sys.modules[importer])
    for name, full in ({full.rpartition(".")[2]: full for full in modules} | renamed).items():
        names[name] = _Unread(full, name, names)


class _Unread(ModuleType):
    """The placeholder of a module until one of its names is used."""

    def __init__(self, full: str, name: str, names: dict[str, Any]) -> None:
        super().__init__(full)
        self.__dict__["_place"] = (full, name, names)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(_read(self), attribute)

    def __setattr__(self, attribute: str, value: Any) -> None:
        setattr(_read(self), attribute, value)

    def __delattr__(self, attribute: str) -> None:
        delattr(_read(self), attribute)

    def __dir__(self) -> list[str]:
        return dir(_read(self))


def _read(unread: _Unread) -> ModuleType:
    full, name, names = unread.__dict__["_place"]
    try:
        module = importlib.import_module(full)
    # For example, too many files are open. The import runs during a call by the user, so the error must be a
    # StoreError. For a shared library, such an error is an ImportError; a module that is not installed is named by its
    # own error.
    except ModuleNotFoundError:
        raise
    except (OSError, ImportError) as error:
        raise StoreError(f"The module {full} cannot be loaded: {error}. Nothing was changed.", path=full) from error
    if names.get(name) is unread:
        names[name] = module
    return module
