"""OpenAPI: the document of the API, made from the table of routes and the structs that serve the requests."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from buoy.web import problems
from buoy.web.endpoint import RUN_ERRORS, Endpoint, Nothing
from buoy.web.problems import CODES, KINDS, Kind, ProblemBody
from buoy.web.routes import API, ENDPOINTS
from buoy.web.stream import STREAMS, StreamEndpoint

_TEMPLATE = "#/components/schemas/{name}"
_ALWAYS = (
    problems.BAD_REQUEST,
    problems.UNAUTHENTICATED,
    problems.FORBIDDEN,
    problems.RATE_LIMITED,
    problems.HEADERS_TOO_LARGE,
    problems.INTERNAL,
)
_PLACE = re.compile(r"{(\w+)}")


def document(version: str, base: str = "") -> dict[str, Any]:
    """The OpenAPI 3.1 document. `base`: the path below which another application has mounted this one."""
    types = [ProblemBody, *(each.result for each in ENDPOINTS)]
    types += [each.query for each in ENDPOINTS] + [each.query for each in STREAMS]
    types += [each.body for each in ENDPOINTS if each.body is not None]
    unique: list[Any] = []
    unique += [each for each in types if each not in unique]
    schemas, components = msgspec.json.schema_components(unique, ref_template=_TEMPLATE, schema_hook=_any_json)
    known = list(zip(unique, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(API + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, known, components)
    for stream in STREAMS:
        paths[API + stream.path] = {"get": _stream(stream, known, components)}
    components["ProblemBody"]["properties"]["code"]["enum"] = list(CODES)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Buoy", "version": version},
        "servers": [{"url": base or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _any_json(_: type) -> dict[str, Any]:
    """The user's own data."""
    return {"description": "Any JSON."}


def _schema(kind: Any, known: list[tuple[Any, dict[str, Any]]]) -> dict[str, Any]:
    return next(schema for each, schema in known if each == kind)


def _operation(endpoint: Endpoint, known: list[tuple[Any, dict[str, Any]]], components: dict[str, Any]) -> Any:
    found: dict[str, Any] = {
        "summary": endpoint.summary,
        **_about(endpoint.query),
        "operationId": _name(endpoint),
        "x-scope": endpoint.scope,
        "parameters": _parameters(endpoint, components),
        "responses": {"200": {"description": "Done.", "content": _json(_schema(endpoint.result, known))}},
    }
    if endpoint.data_max:
        found["requestBody"] = {"required": True, "content": _json({"type": "object"})}
    if endpoint.body is not None:
        needed = endpoint.body is not Nothing and bool(components[endpoint.body.__name__].get("required"))
        found["requestBody"] = {"required": needed, "content": _json(_schema(endpoint.body, known))}
    found["responses"] |= _failures([KINDS[each] for each in endpoint.errors], known, endpoint)
    return found


def _failures(kinds: list[Kind], known: list[tuple[Any, dict[str, Any]]], endpoint: Endpoint | None) -> dict[str, Any]:
    all_kinds = [*_ALWAYS, *kinds, KINDS_BAD_INPUT]
    if endpoint is not None and (endpoint.body is not None or endpoint.data_max):
        all_kinds += [problems.BODY_TOO_LARGE, problems.BODY_TOO_SLOW]
    by_status: dict[str, list[str]] = {}
    for kind in all_kinds:
        codes = by_status.setdefault(str(kind.status), [])
        if kind.code not in codes:
            codes.append(kind.code)
    schema = _schema(ProblemBody, known)
    return {
        status: {"description": "; ".join(codes), "content": {"application/problem+json": {"schema": schema}}}
        for status, codes in sorted(by_status.items())
    }


def _stream(stream: StreamEndpoint, known: list[tuple[Any, dict[str, Any]]], components: dict[str, Any]) -> Any:
    parameters = _parameters(stream, components)
    parameters.append({"name": "Last-Event-ID", "in": "header", "schema": stream.last_id})
    answers = {"200": {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}}
    kinds = [KINDS[each] for each in RUN_ERRORS]
    return {
        "summary": stream.summary,
        **_about(stream.query),
        "operationId": stream.name,
        "x-scope": "read",
        "parameters": parameters,
        "responses": answers | _failures([*kinds, problems.TOO_MANY_STREAMS], known, None),
    }


def _parameters(endpoint: Endpoint | StreamEndpoint, components: dict[str, Any]) -> list[Any]:
    properties = components[endpoint.query.__name__].get("properties", {})
    named = [{"name": name, "in": "query", "schema": schema} for name, schema in properties.items()]
    return _places(endpoint.path) + named


def _about(query: type[msgspec.Struct]) -> dict[str, str]:
    """What the parameters mean."""
    return {} if query is Nothing else {"description": inspect.cleandoc(query.__doc__ or "")}


def _places(path: str) -> list[Any]:
    """The parameters that are in the path."""
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in _PLACE.findall(path)]


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _name(endpoint: Endpoint) -> str:
    words = [part for part in endpoint.path.split("/") if part and "{" not in part]
    return "_".join([endpoint.method.lower(), *words, *(["one"] if "{" in endpoint.path else [])])


KINDS_BAD_INPUT = next(kind for error, kind in KINDS.items() if error.__name__ == "BadInput")
