"""The OpenAPI document of a component, from its services."""

from __future__ import annotations

from typing import Any

from . import shape
from .service import Service

_HEADERS = {
    "Idempotency-Key": "a client's name for its request, where a root begins: asked again, the stored answer comes back",
    "Cognate-Deadline-Ms": "milliseconds that are left; 10000 if nothing is said, at most 60000",
    "Cognate-Root": "between components: the root that the call is part of",
    "Cognate-Parent": "between components: who calls",
    "Cognate-Call": "between components: the call",
    "Cognate-Ancestors": "between components: the calls that it is part of, with commas",
}
_PROBLEMS = {
    "400": "arguments, failed",
    "401": "token",
    "404": "service, path",
    "409": "conflict, ancestor, closed-sibling, running, ended, closed",
    "413": "size",
    "422": "arguments, key",
    "503": "away, database, fenced, unknown, journal, defect",
    "504": "deadline",
    "508": "depth",
}
_PROBLEM = {
    "type": "object",
    "required": ["status", "reason", "detail"],
    "properties": {
        "status": {"type": "integer"},
        "reason": {"type": "string"},
        "detail": {"type": "string"},
        "holder": {"type": "string"},
        "item": {"type": "string"},
        "began": {"type": "boolean"},
    },
}


def document(component: str, services: list[Service], has_tokens: bool) -> dict[str, Any]:
    """The document."""
    whole: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": component, "version": "1"},
        "paths": {f"/services/{service.name}": {"post": _operation(service)} for service in services},
        "components": {"schemas": {"Problem": _PROBLEM}},
    }
    if has_tokens:
        whole["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        whole["security"] = [{"bearer": []}]
    return whole


def _operation(service: Service) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    answers: dict[str, Any] = {status: {"description": reasons, "content": problem} for status, reasons in _PROBLEMS.items()}
    answered = {"application/json": {"schema": shape.schema(service.answers)}}
    generation = {"Cognate-Generation": {"schema": {"type": "integer"}}}
    return {
        "operationId": service.name,
        "description": service.declared.kind,
        "parameters": [
            {
                "name": header,
                "in": "header",
                "description": text,
                "schema": {"type": "integer" if header == "Cognate-Deadline-Ms" else "string"},
            }
            for header, text in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": shape.schema(service.takes)}}},
        "responses": {"200": {"description": "the answer", "headers": generation, "content": answered}} | answers,
    }
