"""The OpenAPI description of the feed, made of the dataclasses by which `groups.codec` reads and writes its JSON."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from sapo_node.feed.access import MAX_WAIT
from sapo_node.feed.messages import Completed, Done, Refused, Report, Started, Work

_PATHS: Mapping[str, tuple[str, type, str]] = {
    "/v1/completions": ("Send the completions of the prompts.", Completed, "completed"),
    "/v1/report": ("Tell what a step of training did.", Report, "reported"),
    "/v1/started": ("Tell which steps the trainer's weights hold.", Started, "started"),
    "/v1/refused": ("Tell that the trainer cannot go back.", Refused, "refused"),
}
_ERRORS = {
    "401": "The token is missing or wrong.",
    "409": "The answer is to work that the node no longer has. Ask for work.",
    "413": "The body is too long.",
    "422": "The body is of another form.",
}
_SCALARS = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
}


@cache
def description() -> dict[str, Any]:
    """The whole description, as JSON."""
    schemas: dict[str, Any] = {}
    wait = {
        "name": "wait",
        "in": "query",
        "description": f"Seconds to wait for work if there is none now, at most {MAX_WAIT:g}.",
        "schema": {"type": "number", "minimum": 0, "maximum": MAX_WAIT},
    }
    paths: dict[str, Any] = {
        "/v1/work": {
            "get": {
                "summary": "What the trainer is to do now.",
                "operationId": "work",
                "parameters": [wait],
                "responses": _responses(Work, schemas, "401", "422"),
            }
        }
    }
    for path, (summary, kind, name) in _PATHS.items():
        paths[path] = {
            "post": {
                "summary": summary,
                "operationId": name,
                "requestBody": {"required": True, "content": _content(kind, schemas)},
                "responses": _responses(Done, schemas, *_ERRORS),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "sapo-node feed", "version": "1", "description": "Verified rollouts for a foreign trainer."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _responses(kind: type, schemas: dict[str, Any], *errors: str) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    refused = {status: {"description": _ERRORS[status], "content": text} for status in errors}
    return {"200": {"description": "Done.", "content": _content(kind, schemas)}} | refused


def _content(kind: type, schemas: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": _schema(kind, schemas)}}


def _schema(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a type. Dataclasses are put into `schemas` and referred to."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _reference(kind, schemas)
    if origin is tuple:
        return _array(arguments, schemas)
    if origin is UnionType:
        return {"anyOf": [_schema(each, schemas) for each in arguments]}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema(arguments[1], schemas)}
    if origin is Literal or issubclass(kind, Enum):
        return {"enum": list(arguments) or [each.value for each in kind]}
    return dict(_SCALARS[kind])


def _array(items: tuple[Any, ...], schemas: dict[str, Any]) -> dict[str, Any]:
    if items[-1] is Ellipsis:
        return {"type": "array", "items": _schema(items[0], schemas)}
    parts = [_schema(each, schemas) for each in items]
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}


def _reference(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in schemas:
        schemas[name] = {}  # holds the place, so that the order is that of first use
        hints = get_type_hints(kind)
        needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
        schemas[name] = {
            "description": " ".join((kind.__doc__ or "").split()),
            "type": "object",
            "properties": {each.name: _schema(hints[each.name], schemas) for each in fields(kind)},
            "required": needed,
            "additionalProperties": False,
        }
    return {"$ref": f"#/components/schemas/{name}"}
