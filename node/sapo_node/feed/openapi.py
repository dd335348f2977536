"""The OpenAPI description of the feed, made of the dataclasses by which `groups.codec` reads and writes its JSON."""

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sapo_node.feed.access import MAX_WAIT, TRAINER, TRAINER_HEADER
from sapo_node.feed.lease import SECONDS
from sapo_node.feed.messages import Completed, Done, Refused, Report, Started, Work
from sapo_node.groups.codec import WHOLE_KEY, range_of

_PATHS: Mapping[str, tuple[str, type, str]] = {
    "/v1/completions": ("Send the completions of one prompt.", Completed, "completed"),
    "/v1/report": ("Tell what a step of training did.", Report, "reported"),
    "/v1/started": ("Tell which steps the trainer's weights hold.", Started, "started"),
    "/v1/refused": ("Tell that the trainer cannot go back.", Refused, "refused"),
}
_ERRORS = {
    "400": "This is no request of HTTP/1.1.",
    "401": "The token is missing or wrong.",
    "403": "Another trainer has the lease of the feed.",
    "409": "The answer does not fit the work that the node has now. Ask for work.",
    "413": "The body is too long.",
    "422": "The body, the name of the trainer, or a parameter is of another form.",
}
_OF_ALL = ("400", "401", "403", "422")
_SCALARS = {
    str: {"type": "string"},
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
    trainer = {
        "name": TRAINER_HEADER,
        "in": "header",
        "required": True,
        "description": "A name of this trainer alone. The feed serves one trainer at a time.",
        "schema": {"type": "string", "pattern": f"^{TRAINER}$"},
    }
    paths: dict[str, Any] = {
        "/v1/work": {
            "get": {
                "summary": "What the trainer is to do now.",
                "operationId": "work",
                "parameters": [wait, trainer],
                "responses": _responses(Work, schemas, *_OF_ALL),
            }
        },
        "/v1/lease": {
            method: {
                "summary": summary,
                "operationId": name,
                "parameters": [trainer],
                "responses": _responses(Done, schemas, *_OF_ALL),
            }
            for method, name, summary in (
                ("post", "renewed", f"Keep the lease for {SECONDS:g} s more, as every request does."),
                ("delete", "ended", "End the lease: another trainer may begin."),
            )
        },
    }
    for path, (summary, kind, name) in _PATHS.items():
        paths[path] = {
            "post": {
                "summary": summary,
                "operationId": name,
                "parameters": [trainer],
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
    if origin in (UnionType, Union):
        return {"anyOf": [_schema(each, schemas) for each in arguments]}
    if origin is Mapping:
        return _object(arguments[0], arguments[1], schemas)
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return {"enum": list(arguments) or [each.value for each in kind]}
    return dict(_SCALARS[kind]) if kind in _SCALARS else _number(kind)


def _number(kind: Any) -> dict[str, Any]:
    bounds, (inner, *_) = range_of(kind), get_args(kind) or (kind,)
    return {"type": "integer" if inner is int else "number", "minimum": bounds.low, "maximum": bounds.high}


def _object(key: Any, item: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """The schema of a mapping; of one with numbers as keys, with their grammar."""
    names = {} if key is str else {"propertyNames": {"pattern": f"^(?:{WHOLE_KEY})$"}}
    return {"type": "object", "additionalProperties": _schema(item, schemas)} | names


def _array(items: tuple[Any, ...], schemas: dict[str, Any]) -> dict[str, Any]:
    if items[-1] is Ellipsis:
        return {"type": "array", "items": _schema(items[0], schemas)}
    parts = [_schema(each, schemas) for each in items]
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}


def _reference(kind: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    name = kind.__name__
    if name not in schemas:
        schemas[name] = {}  # holds the place, so that the order is that of first use
        hints = get_type_hints(kind, include_extras=True)
        needed = [each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING]
        schemas[name] = {
            "description": " ".join((kind.__doc__ or "").split()),
            "type": "object",
            "properties": {each.name: _schema(hints[each.name], schemas) for each in fields(kind)},
            "required": needed,
            "additionalProperties": False,
        }
    return {"$ref": f"#/components/schemas/{name}"}
