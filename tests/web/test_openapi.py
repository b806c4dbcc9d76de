"""The OpenAPI document has every route, parameter and error code of the API, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from starlette.routing import Route

from buoy.errors import BadInput
from buoy.web import problems
from buoy.web.app import Application
from buoy.web.auth import allow_anyone
from buoy.web.backend import Backend
from buoy.web.endpoint import RUN_ERRORS, Endpoint, Nothing
from buoy.web.openapi import document
from buoy.web.problems import KINDS, Kind
from buoy.web.routes import API, ENDPOINTS
from buoy.web.stream import STREAMS, StreamEndpoint

DOCUMENT = document("0")
# What any call may be answered with, before it is looked at.
ALWAYS = (
    problems.BAD_REQUEST, problems.UNAUTHENTICATED, problems.FORBIDDEN, problems.RATE_LIMITED,
    problems.HEADERS_TOO_LARGE, problems.INTERNAL, KINDS[BadInput],
)  # fmt: skip


async def _no_store() -> Any:
    raise AssertionError("nothing is opened")


def test_every_route_of_the_application_is_in_the_document() -> None:
    app = Application(Backend(_no_store), allow_anyone).build()
    served = {
        (each.path, method.lower())
        for each in app.routes
        if isinstance(each, Route) and each.path.startswith(API) and each.path != f"{API}/openapi.json"
        for method in (each.methods or ()) if method != "HEAD"
    }  # fmt: skip
    told = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert served == told


@pytest.mark.parametrize("each", ENDPOINTS, ids=lambda each: f"{each.method} {each.path}")
def test_a_call_is_described_with_its_parameters_body_and_error_codes(each: Endpoint) -> None:
    operation = DOCUMENT["paths"][API + each.path][each.method.lower()]
    places = set(re.findall(r"{(\w+)}", each.path))
    assert {(one["name"], one["in"]) for one in operation["parameters"]} == {
        *((name, "path") for name in places),
        *((name, "query") for name in each.query.__struct_encode_fields__),
    }
    assert ("description" in operation) == (each.query is not Nothing)
    assert ("requestBody" in operation) == (each.body is not None or bool(each.data_max))
    kinds = [*ALWAYS, *(KINDS[one] for one in each.errors)]
    if each.body is not None or each.data_max:
        kinds += [problems.BODY_TOO_LARGE, problems.BODY_TOO_SLOW]
    assert codes_of(operation) == {(str(kind.status), kind.code) for kind in kinds}


@pytest.mark.parametrize("each", STREAMS, ids=lambda each: each.path)
def test_a_stream_is_described_with_its_parameters_and_error_codes(each: StreamEndpoint) -> None:
    operation = DOCUMENT["paths"][API + each.path]["get"]
    assert {(one["name"], one["in"]) for one in operation["parameters"]} == {
        *((name, "path") for name in re.findall(r"{(\w+)}", each.path)),
        *((name, "query") for name in each.query.__struct_encode_fields__),
        ("Last-Event-ID", "header"),
    }
    assert list(operation["responses"]["200"]["content"]) == ["text/event-stream"]
    kinds = [*ALWAYS, problems.TOO_MANY_STREAMS, *(KINDS[one] for one in RUN_ERRORS)]
    assert codes_of(operation) == {(str(kind.status), kind.code) for kind in kinds}


def codes_of(operation: dict[str, Any]) -> set[tuple[str, str]]:
    """Each status and code with which the document lets an operation fail."""
    failed = {status: each for status, each in operation["responses"].items() if status != "200"}
    assert all(list(each["content"]) == ["application/problem+json"] for each in failed.values())
    return {(status, code) for status, each in failed.items() for code in each["description"].split("; ")}


def test_the_document_has_every_code_that_a_problem_may_have() -> None:
    kinds = [*KINDS.values(), *(each for each in vars(problems).values() if isinstance(each, Kind))]
    told = DOCUMENT["components"]["schemas"]["ProblemBody"]["properties"]["code"]["enum"]
    assert told == sorted({each.code for each in kinds})


def test_names_of_calls_are_unique_and_references_lead_somewhere() -> None:
    names = [one["operationId"] for methods in DOCUMENT["paths"].values() for one in methods.values()]
    assert len(names) == len(set(names))
    text = str(DOCUMENT)
    for name in set(re.findall(r"#/components/schemas/(\w+)", text)):
        jsonschema.Draft202012Validator.check_schema(DOCUMENT["components"]["schemas"][name])


def test_every_error_class_of_the_table_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in KINDS.values()]
    assert len(codes) == len(set(codes))
