"""Answers against the OpenAPI document: every answer that a test gets is what the document says."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import jsonschema

from buoy.web.openapi import document
from buoy.web.routes import API


@cache
def _told() -> dict[str, Any]:
    return document("0")


@cache
def _validator(path: str, method: str, status: str) -> jsonschema.Draft202012Validator:
    (content,) = _told()["paths"][path][method]["responses"][status]["content"].values()
    return jsonschema.Draft202012Validator({**content["schema"], "components": _told()["components"]})


def check_answer(method: str, path: str, status: int, body: Any) -> None:
    """Fails if the document has no such answer, or another schema or no such error code for it."""
    plain = API + path.partition("?")[0]
    for known, methods in _told()["paths"].items():
        if not re.fullmatch(re.sub(r"{\w+}", "[^/]+", known), plain) or method.lower() not in methods:
            continue
        answers = methods[method.lower()]["responses"]
        assert str(status) in answers, f"{method} {path}: the document has no answer {status}: {body}"
        wrong = list(_validator(known, method.lower(), str(status)).iter_errors(body))
        assert not wrong, f"{method} {path}: {wrong[0].message} at {list(wrong[0].absolute_path)}"
        if status >= 400:
            assert body["code"] in answers[str(status)]["description"].split("; "), f"{method} {path}: {body['code']}"
        return
