"""The OpenAPI document.

Spec: OpenAPI 3.1.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from deltalog.server import answers
from deltalog.server.lakeformation import OPERATIONS
from deltalog.server.openapi import calls, shapes
from deltalog.server.openapi.calls import LAKE_FORMATION, OWN, UNITY, Described, Parameter
from deltalog.server.unity import administration, delta, general, permissions
from deltalog.server.unity.errors import BAD_REQUEST, INTERNAL, TYPES
from deltalog.unity import messages
from deltalog.version import VERSION

PATH = "/openapi.json"
_Json = dict[str, Any]
_HEALTH_SHAPES = (shapes.Health, shapes.Live, shapes.Ready, shapes.Unready, shapes.Failing)
_REF = "#/components/schemas/{name}"
_TEXT = "application/json"
# The errors that every call of Unity Catalog's APIs and of deltalog's own API can return.
_EVERY = (BAD_REQUEST, "NotAuthorizedException", "PermissionDeniedException", "TooManyRequestsException", INTERNAL)
# Statuses of refusals before the body is read; their error type has another status in all other responses.
_REFUSED_UNREAD = {
    "408": "The body was not received in time.",
    "413": "The body is too large.",
    "431": "The headers are too large.",
}
_LAKE_UNREAD = {
    "404": ("UnknownOperationException",),
    "408": ("RequestTimeoutException",),
    "413": ("RequestEntityTooLargeException",),
    "431": ("RequestHeaderFieldsTooLargeException",),
    "429": ("ThrottledException",),
    "503": ("ServiceUnavailableException",),
}
_TITLES = {
    "400": "The request is invalid.",
    "401": "The caller is not authenticated.",
    "403": "The caller is not permitted to do this.",
    "404": "The object does not exist, or the caller may not see it.",
    "409": "The object already exists, or was changed at the same time.",
    "429": "Too many requests, or too many unpublished commits. Repeat the request later.",
    "500": "The server, a store or the catalog failed, or it is unknown whether a commit took effect.",
    "503": "Too many requests are in progress. Repeat the request later.",
    **_REFUSED_UNREAD,
}
# The tag, the root, the routes and the descriptions of each API.
_APIS = (
    ("Unity Catalog: Delta API", messages.ROOT, delta.ENDPOINTS, UNITY),
    ("Unity Catalog: general API", messages.ROOT, (*general.ENDPOINTS, *permissions.ENDPOINTS), UNITY),
    ("deltalog", administration.ROOT, administration.ENDPOINTS, OWN),
)
_SECURITY: tuple[_Json, ...] = ({"bearer": []}, {"sessionToken": []}, {"signature": []}, {"certificate": []}, {})
_SCHEMES: _Json = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the server, or of the OpenID Connect issuer that it is configured with.",
    },
    "sessionToken": {
        "type": "apiKey",
        "in": "header",
        "name": "x-amz-security-token",
        "description": "A token of the server, sent as the session token of an AWS client.",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "authorization",
        "description": "An AWS signature, version 4, if the server is configured to verify signatures.",
    },
    "certificate": {"type": "mutualTLS", "description": "A client certificate."},
}
_ABOUT = (
    "Unity Catalog's API for Delta tables, the transaction calls of AWS Lake Formation, and deltalog's own calls. "
    "A server on a loopback address without a token takes every caller for an administrator. Requests of web pages "
    "(with the header Origin) are refused with 403. Bytes that are not HTTP are answered with 400 and plain text."
)


@functools.cache
def encoded() -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document())


def document() -> _Json:
    """The document. Raises KeyError for a route without a description."""
    described = [*UNITY.values(), *OWN.values(), *LAKE_FORMATION.values()]
    kinds = [kind for call in described for kind in (call.body, call.result) if kind is not None]
    refs, components = _schemas([*kinds, *_HEALTH_SHAPES])
    paths: dict[str, _Json] = {}
    for tag, root, endpoints, calls_ in _APIS:
        for each in endpoints:
            call, name = calls_[each.name], f"{each.method} {each.path}"
            responses = {**_success(call, refs), **_unity_errors(_types(call), has_body=each.method != "HEAD")}
            operation = _operation(tag, name, each.path, call, refs, responses)
            paths.setdefault(root + each.path, {})[each.method.lower()] = operation
    for name, of_lake in OPERATIONS.items():
        call = LAKE_FORMATION[name]
        responses = {**_success(call, refs), **_lake_errors(of_lake.errors)}
        paths[f"/{name}"] = {"post": _operation("Lake Formation", name, "", call, refs, responses)}
    paths.update(_of_server(refs))
    components |= {"UnityError": _UNITY_ERROR, "Error": _LAKE_ERROR}
    responses = _shared(paths)
    return {
        "openapi": "3.1.0",
        "info": {"title": "deltalog", "version": VERSION, "description": _ABOUT},
        "security": list(_SECURITY),
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": responses,
            "securitySchemes": _SCHEMES,
        },
    }


def _shared(paths: Mapping[str, _Json]) -> _Json:
    """Replace responses that occur in several calls by references, and return these responses by name. Calls have few
    different error responses; this reduces the document to a third of its size.
    """
    found: dict[bytes, tuple[str, _Json]] = {}
    for path in paths.values():
        for operation in path.values():
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    continue
                key = msgspec.json.encode(response)
                number = sum(name.startswith(f"{status}.") for name, _ in found.values()) + 1
                name, _ = found.setdefault(key, (f"{status}.{number}", response))
                operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    return dict(sorted(found.values()))


def _schemas(kinds: Iterable[Any]) -> tuple[dict[Any, _Json], _Json]:
    """The schemas of types by type, and the components that they refer to."""
    unique = list(dict.fromkeys(kinds))
    found, components = msgspec.json.schema_components(unique, ref_template=_REF)
    # The default values of lists are tuples, which JSON does not have.
    listed = msgspec.json.decode(msgspec.json.encode(dict(components)), type=dict[str, Any])
    return dict(zip(unique, found, strict=True)), listed


def _operation(tag: str, name: str, path: str, call: Described, refs: Mapping[Any, _Json], responses: _Json) -> _Json:
    made: _Json = {
        "tags": [tag],
        "operationId": re.sub(r"\W+", "_", f"{tag.partition(': ')[2] or tag} {name}").strip("_"),
        "summary": call.summary,
        "responses": responses,
    }
    parameters = [_in_path(each) for each in re.findall(r"\{(\w+)\}", path)] + [_in_query(each) for each in call.query]
    if parameters:
        made["parameters"] = parameters
    if call.body is not None:
        made["requestBody"] = {"required": True, "content": {_TEXT: {"schema": refs[call.body]}}}
    return made


def _in_path(name: str) -> _Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _in_query(given: Parameter) -> _Json:
    return {
        "name": given.name,
        "in": "query",
        "description": given.text,
        "required": given.is_required,
        "schema": dict(given.schema),
    }


def _success(call: Described, refs: Mapping[Any, _Json]) -> _Json:
    if call.result is None:
        return {} if call.errors == (calls.NOT_FOUND,) else {"204": {"description": "Done."}}
    return {"200": {"description": "Done.", "content": {_TEXT: {"schema": refs[call.result]}}}}


# ------------------------------------------------------------------------------------------------------ errors

_UNITY_ERROR: _Json = {
    "description": "An error, with the members of both of Unity Catalog's APIs.",
    "type": "object",
    "required": ["error", "error_code", "message"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "code", "message"],
            "properties": {
                "type": {"type": "string", "enum": sorted(TYPES)},
                "code": {"type": "integer"},
                "message": {"type": "string"},
            },
        },
        "error_code": {"type": "string", "enum": sorted({name for _, name in TYPES.values()})},
        "message": {"type": "string"},
    },
}
_LAKE_ERROR: _Json = {
    "description": "An error, as AWS returns it.",
    "type": "object",
    "required": ["__type", "Message"],
    "properties": {"__type": {"type": "string"}, "Message": {"type": "string"}},
}


def _types(call: Described) -> Mapping[str, Sequence[str]]:
    """The types of errors of a call, by status."""
    found: dict[str, list[str]] = {status: [BAD_REQUEST] for status in _REFUSED_UNREAD}
    for kind in (*_EVERY, *call.errors):
        found.setdefault(str(TYPES[kind][0]), []).append(kind)
    return found


def _unity_errors(types: Mapping[str, Sequence[str]], *, has_body: bool) -> _Json:
    found: _Json = {}
    for status, kinds in sorted(types.items()):
        only = {"type": "object", "properties": {"type": {"enum": list(kinds)}, "code": {"const": int(status)}}}
        codes = {"enum": [TYPES[kind][1] for kind in kinds]}
        schema = {
            "allOf": [
                {"$ref": _REF.format(name="UnityError")},
                {"type": "object", "properties": {"error": only, "error_code": codes}},
            ]
        }
        found[status] = _error(status, schema if has_body else None)
    return found


def _lake_errors(listed: Iterable[str]) -> _Json:
    """The errors of a call of Lake Formation, by status. ``listed``: the exceptions that AWS's service model lists for
    it.
    """
    names: dict[str, list[str]] = {status: list(each) for status, each in _LAKE_UNREAD.items() if status != "404"}
    known = [name for name in answers.possible(frozenset(listed)) if name != answers.INTERNAL]
    names["400"] = sorted({*known, "SerializationException", "BadRequestException", "RequestTimeoutException"})
    names["403"], names["500"] = [answers.DENIED], [answers.INTERNAL]
    return {status: _error(status, _lake_schema(each)) for status, each in sorted(names.items())}


def _lake_schema(names: Sequence[str]) -> _Json:
    only = {"type": "object", "properties": {"__type": {"enum": list(names)}}}
    return {"allOf": [{"$ref": _REF.format(name="Error")}, only]}


def _error(status: str, schema: _Json | None) -> _Json:
    found: _Json = {"description": _TITLES[status]}
    if schema is not None:
        found["content"] = {_TEXT: {"schema": schema}}
    if status in ("429", "503"):
        found["headers"] = {"retry-after": {"description": "In seconds.", "schema": {"type": "string"}}}
    return found


# -------------------------------------------------------------------------------------------- other calls


def _of_server(refs: Mapping[Any, _Json]) -> dict[str, _Json]:
    """The calls that belong to no API: health, and this document."""
    refused = {
        status: _error(status, _lake_schema(names))
        for status, names in {
            "400": ["BadRequestException"],
            "403": [answers.DENIED],
            "431": _LAKE_UNREAD["431"],
        }.items()
    }
    busy = {
        status: _error(status, _lake_schema(names))
        for status, names in (*_LAKE_UNREAD.items(), ("500", (answers.INTERNAL,)))
        if status not in ("404", "431")
    }
    shown = {"200": {"description": "The description.", "content": {_TEXT: {"schema": {"type": "object"}}}}}
    described = Described("This OpenAPI description. Every principal may read it.")
    page = _operation("Server", f"GET {PATH}", "", described, refs, {**shown, **refused, **busy})
    paths: dict[str, _Json] = {PATH: {"get": page}}
    for path, summary, works, fails in (
        ("/health", "Whether the catalog answers.", shapes.Health, [shapes.Failing]),
        ("/health/live", "Whether the process answers. If it does not, restart it.", shapes.Live, []),
        ("/health/ready", "Whether the server is ready for requests.", shapes.Ready, [shapes.Unready, shapes.Failing]),
    ):
        answers_: _Json = {"200": {"description": "Yes.", "content": {_TEXT: {"schema": refs[works]}}}}
        if fails:
            either = {"anyOf": [refs[each] for each in fails]}
            answers_["503"] = {"description": "Not now.", "content": {_TEXT: {"schema": either}}}
        call = Described(summary)
        operation = _operation("Server", f"GET {path}", "", call, refs, {**answers_, **refused})
        paths[path] = {"get": {**operation, "security": []}}
    return paths
