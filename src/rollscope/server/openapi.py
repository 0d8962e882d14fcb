"""The OpenAPI description, derived from the table of routes and the types it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .routes import Route
from .shapes import ListedRow, Refusal
from .version import VERSION

_REF = "#/components/schemas/{name}"


def describe(routes: Sequence[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 of these routes."""
    types: list[Any] = [Refusal]
    for route in routes:
        types += [t for t in (route.answer, route.body) if t is not None]
        types.append(route.params)
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(types, schemas, strict=True))
    asked = {route.params.__name__ for route in routes}
    asked |= {route.body.__name__ for route in routes if route.body is not None}
    _close(components, asked)
    unnamed = {route.params.__name__ for route in routes}
    paths: dict[str, Any] = {}
    for route in routes:
        operation = _operation(route, by_type, components)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rollscope",
            "version": VERSION,
            "description": "Everything the viewer shows. First read this: rollscope docs api.",
        },
        "paths": paths,
        "components": {"schemas": {k: v for k, v in components.items() if k not in unnamed}},
    }


def _operation(route: Route, by_type: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    problem = {
        "description": "Refused; the answer says why.",
        "content": {"application/json": {"schema": by_type[Refusal]}},
    }
    answer: dict[str, Any] = {"description": "As asked."}
    if route.stream:
        answer["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif route.answer is not None:
        answer["content"] = {"application/json": {"schema": by_type[route.answer]}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.doc,
        "parameters": _path_parameters(route.path) + _query_parameters(route, components),
        "responses": {"200": answer, **dict.fromkeys(("400", "401", "403", "404"), problem)},
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_type[route.body]}},
        }
    return operation


def _path_parameters(path: str) -> list[dict[str, Any]]:
    kinds = {"n": {"type": "integer", "minimum": 0}}
    return [
        {"name": n, "in": "path", "required": True, "schema": kinds.get(n, {"type": "string"})}
        for n in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components.get(route.params.__name__, {})
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]


def _close(components: dict[str, Any], asked: set[str]) -> None:
    """Answers carry every field, defaults too: say so, or clients must ask twice. Of the rows
    of a page they carry what was asked for."""
    for name, schema in components.items():
        if name == ListedRow.__name__:
            for field in schema["properties"].values():
                field.pop("default", None)
        elif name not in asked and "properties" in schema:
            schema["required"] = sorted(schema["properties"])
