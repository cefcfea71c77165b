"""Checks the arguments of public calls against the types in their signatures, before anything else happens. Pure.

An argument of the wrong type raises a CallError that names the parameter, instead of some later error.
Instances of subclasses of str and numbers, including NumPy's, become Python's own types.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from deltalog.errors import CallError

T = TypeVar("T")
# Returns the value to use; raises _WrongTypeError.
_Check = Callable[[Any], Any]
# The checks of positional parameters in order (None: unchecked), the checks of all parameters by name, and the types of
# all parameters in order.
_Plan = tuple[tuple[_Check | None, ...], dict[str, _Check], dict[str, Any]]
_TEXTS = (str, bytes, bytearray, memoryview)
_MAX_SHOWN = 100


class _WrongTypeError(Exception):
    """A value is not of the expected type."""


def checked(target: T) -> T:
    """Decorate a function, or the public methods of a class, to check their arguments."""
    if isinstance(target, type):
        for name, member in list(vars(target).items()):
            if not name.startswith("_"):
                _check_member(target, name, member)
        return target
    return typing.cast("T", _checked(target))


def _check_member(owner: type, name: str, member: Any) -> None:
    if isinstance(member, (classmethod, staticmethod)):
        setattr(owner, name, type(member)(_checked(member.__func__)))
    elif inspect.isfunction(member):
        setattr(owner, name, _checked(member))


def _checked(function: Any) -> Any:
    plan: list[_Plan] = []  # built by the first call, because type hints may refer to modules that are not imported yet

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        if not plan:
            plan.append(_plan(function))
        checks, by_name, _ = plan[0]
        try:
            if args:
                more = args[len(checks) :]
                args = tuple([v if c is None else c(v) for v, c in zip(args, checks, strict=False)])
                args += more
            for name in named:
                if name in by_name:
                    named[name] = by_name[name](named[name])
        except _WrongTypeError:
            raise _refusal(function, plan[0], args, named) from None
        return function(*args, **named)

    return call


def _refusal(function: Any, plan: _Plan, args: Sequence[Any], named: Mapping[str, Any]) -> CallError:
    """The error for the first argument that has the wrong type."""
    checks, by_name, hints = plan
    given = [*zip(hints, args, checks, strict=False), *((name, named[name], by_name.get(name)) for name in named)]
    for name, value, check in given:
        try:
            if check is not None:
                check(value)
        except _WrongTypeError:
            return CallError(
                f"{_call_name(function, args)}: {name} must be {_described(hints[name])}; got {shown(value)}."
            )
    return CallError(f"{_call_name(function, args)}: an argument has the wrong type.")


def _call_name(function: Any, args: Sequence[Any]) -> str:
    """The name of a call, for messages; an inherited method is named after the class on which it is called."""
    owner, _, name = str(function.__qualname__).removesuffix(".__init__").rpartition(".")
    inherits = args and any(base.__name__ == owner for base in type(args[0]).__mro__)
    return f"{type(args[0]).__name__}.{name}" if inherits else f"{owner}.{name}" if owner else name


def check_options(given: Mapping[str, Any], options: type, verb: str) -> None:
    """Raise CallError if ``given`` contains a name that is not a key of the TypedDict ``options``."""
    unknown = given.keys() - options.__annotations__.keys()
    if unknown:
        known = ", ".join(options.__annotations__)
        raise CallError(f"Unknown option {sorted(unknown)[0]!r}. The options of {verb} are {known}.")


def shown(value: Any) -> str:
    """A value as text for a message, truncated."""
    try:
        text = ascii(value)
    except Exception:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({type(value).__name__})"


def _plan(function: Any) -> _Plan:
    in_order, by_name, hints = list[_Check | None](), dict[str, _Check](), dict[str, Any]()
    for parameter in inspect.signature(function).parameters.values():
        hint = _resolved(parameter.annotation, inspect.unwrap(function))
        check = None if hint is Any else _check_of(hint)
        if parameter.kind is parameter.VAR_KEYWORD:
            for name, each in _options(parameter.annotation, inspect.unwrap(function)):
                by_name[name], hints[name] = each
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        hints[parameter.name] = hint
        if parameter.kind is not parameter.KEYWORD_ONLY:
            in_order.append(check)
        if check is not None and parameter.kind is not parameter.POSITIONAL_ONLY:
            by_name[parameter.name] = check
    return tuple(in_order), by_name, hints


def _options(annotation: Any, function: Any) -> Iterator[tuple[str, tuple[_Check, Any]]]:
    """The checks for options that a signature declares as ``Unpack[some TypedDict]``."""
    if isinstance(annotation, str) and annotation.startswith("Unpack["):
        options = _resolved(annotation.removeprefix("Unpack[").removesuffix("]"), function)
        for name, hint in typing.get_type_hints(options).items():
            check = _check_of(hint)
            if check is not None:
                yield name, (check, hint)


def _resolved(annotation: Any, function: Any) -> Any:
    """The type of an annotation; Any if there is none, or if only type checkers import it."""
    if annotation is inspect.Parameter.empty:
        return Any
    try:
        # What is evaluated is source code of this package.
        return eval(annotation, function.__globals__) if isinstance(annotation, str) else annotation  # nosec B307
    except (NameError, TypeError, AttributeError):
        return Any


# ------------------------------------------------------------------------------------------------------ checks


def _check_of(hint: Any) -> _Check | None:
    """The check for a type; None for types that are not checked here."""
    if hint is Any or hint is object or isinstance(hint, (str, TypeVar)):
        return None
    if hint is None or hint is type(None):
        return _none
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin = typing.get_origin(hint)
    if origin is not None:
        made = _GENERIC.get(origin)
        return None if made is None else made(hint)
    return _instance(hint) if isinstance(hint, type) and not typing.is_typeddict(hint) else None


def _none(value: Any) -> None:
    if value is not None:
        raise _WrongTypeError


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongTypeError
    if type(value) is not str:
        value = str(str.__str__(value))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _WrongTypeError from None
    return str(value)


def _integer(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, bool) or not hasattr(type(value), "__index__"):
            raise _WrongTypeError
        try:
            value = operator.index(value)
        except TypeError:
            raise _WrongTypeError from None
    return int(value)


def _number(value: Any) -> Any:
    return value if isinstance(value, float) else _integer(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise _WrongTypeError


def _callable(value: Any) -> Any:
    if not callable(value):
        raise _WrongTypeError
    return value


_SIMPLE: dict[Any, _Check] = {str: _text, int: _integer, float: _number, bool: _flag}


def _instance(kind: type) -> _Check:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _WrongTypeError
        return value

    return check


def _any_of(hint: Any) -> _Check | None:
    members = typing.get_args(hint)
    checks = [_check_of(member) for member in members]
    # Points in time are checked when they are parsed, which raises InvalidTimestampError.
    if None in checks or datetime in members:
        return None

    def check(value: Any) -> Any:
        for each in checks:
            try:
                return each(value)  # type: ignore[misc]
            except _WrongTypeError:
                continue
        raise _WrongTypeError

    return check


def _literal(hint: Any) -> _Check:
    allowed = typing.get_args(hint)

    def check(value: Any) -> Any:
        for each in allowed:
            if isinstance(value, type(each)) and value == each:
                return each
        raise _WrongTypeError

    return check


def _sequence(hint: Any) -> _Check:
    element = _check_of(typing.get_args(hint)[0])

    def check(value: Any) -> Any:
        if isinstance(value, (*_TEXTS, collections.abc.Mapping)) or not isinstance(value, collections.abc.Iterable):
            raise _WrongTypeError
        given = value if isinstance(value, (list, tuple)) else list(value)
        return given if element is None else [element(each) for each in given]

    return check


def _iterable(hint: Any) -> _Check:
    (each,) = typing.get_args(hint)
    # Items of a union type, such as records, are checked when they are read.
    is_one_kind = typing.get_origin(each) not in (typing.Union, types.UnionType)
    element = _check_of(each) if is_one_kind else None

    def check(value: Any) -> Any:
        is_stream = element is None and hasattr(value, "__arrow_c_stream__")
        if isinstance(value, _TEXTS) or not (is_stream or isinstance(value, collections.abc.Iterable)):
            raise _WrongTypeError
        if element is None:
            return value
        if isinstance(value, (list, tuple, set, frozenset)):
            return [element(each) for each in value]
        return _one_by_one(value, element, each)

    return check


def _one_by_one(values: Any, element: _Check, hint: Any) -> Iterator[Any]:
    """An iterator that checks each item when it is read."""
    for value in values:
        try:
            yield element(value)
        except _WrongTypeError:
            raise CallError(f"Each item must be {_described(hint)}; got {shown(value)}.") from None


def _mapping(hint: Any) -> _Check:
    # Values are checked where they are used; the errors name the key.
    key = _check_of(typing.get_args(hint)[0])

    def check(value: Any) -> Any:
        if not isinstance(value, collections.abc.Mapping):
            raise _WrongTypeError
        return value if key is None else {key(name): each for name, each in value.items()}

    return check


def _tuple(hint: Any) -> _Check:
    parts = typing.get_args(hint)
    if len(parts) == 2 and parts[1] is Ellipsis:
        return _sequence(hint)
    checks = [_check_of(part) for part in parts]

    def check(value: Any) -> Any:
        if not isinstance(value, (tuple, list)) or len(value) != len(checks):
            raise _WrongTypeError
        return tuple(each if one is None else one(each) for one, each in zip(checks, value, strict=True))

    return check


_GENERIC: dict[Any, Callable[[Any], _Check | None]] = {
    typing.Union: _any_of,
    types.UnionType: _any_of,
    typing.Literal: _literal,
    typing.Annotated: lambda hint: _check_of(typing.get_args(hint)[0]),
    collections.abc.Sequence: _sequence,
    list: _sequence,
    collections.abc.Iterable: _iterable,
    collections.abc.Mapping: _mapping,
    dict: _mapping,
    tuple: _tuple,
    collections.abc.Callable: lambda hint: _callable,
}


# --------------------------------------------------------------------------------------------------- messages


_WORDS = {str: "text", int: "an integer", float: "a number", bool: "True or False"}


def _described(hint: Any) -> str:
    """Describes the values that a type accepts, for a message."""
    if hint is None or hint is type(None):
        return "None"
    if hint in _WORDS:
        return _WORDS[hint]
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_described, parts)))
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin in (collections.abc.Sequence, list, collections.abc.Iterable):
        return f"a list of {_plural(parts[0])}"
    if origin in (collections.abc.Mapping, dict):
        return f"a mapping from {_plural(parts[0])} to {_plural(parts[1])}"
    if origin is tuple:
        return "a tuple of " + ", ".join("more of them" if part is ... else _described(part) for part in parts)
    if origin is collections.abc.Callable:
        return "a function"
    name = getattr(hint, "__name__", str(hint))
    return f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"


def _plural(hint: Any) -> str:
    if hint is Any:
        return "values"
    return {int: "integers"}.get(hint) or _described(hint).removeprefix("an ").removeprefix("a ")


def safe_repr(represent: Callable[[Any], str]) -> Callable[[Any], str]:
    """A ``__repr__`` that also works if the object's constructor raised, because tools that print tracebacks call it on
    such objects."""

    @functools.wraps(represent)
    def shown(self: Any) -> str:
        try:
            return represent(self)
        except AttributeError:
            return f"<{type(self).__name__} that was not opened>"

    return shown
