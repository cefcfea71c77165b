"""The repr of every class works on an object whose constructor raised: the frames of the traceback refer to such
objects, and debuggers and loggers print them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import deltalog
from deltalog import CallError
from deltalog.storage.s3.store import S3Store


def classes() -> Iterator[Any]:
    for module in pkgutil.walk_packages(deltalog.__path__, "deltalog."):
        if module.name.rpartition(".")[2] == "__main__":
            continue
        try:
            found = importlib.import_module(module.name)
        except ImportError:  # the module needs an extra that is not installed
            continue
        for _, each in inspect.getmembers(found, inspect.isclass):
            own = vars(each).get("__repr__")
            if each.__module__ != module.name or not inspect.isfunction(own) or own.__module__ != module.name:
                continue
            if inspect.unwrap(own).__code__.co_filename == inspect.getfile(
                found
            ):  # not a method that Python generates for a dataclass
                yield each


def test_each_class_with_a_text_of_its_own_has_it_before_it_is_made() -> None:
    found = list(classes())
    assert len(found) > 10
    for each in found:
        try:
            made = each.__new__(each)
        except TypeError:  # types such as tuple cannot be created without values
            continue
        assert isinstance(repr(made), str), each


def test_no_class_does_something_when_it_is_collected() -> None:
    assert not [each for each in classes() if "__del__" in vars(each)]


def test_a_store_whose_options_are_wrong() -> None:
    with pytest.raises(CallError) as raised:
        S3Store("s3://bucket/x", client_kwargs="no dictionary")
    texts = [repr(frame.locals.get("self")) for frame in _frames(raised.value)]
    assert any("S3Store" in text for text in texts)


def _frames(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        yield type("Frame", (), {"locals": trace.tb_frame.f_locals})
        trace = trace.tb_next
