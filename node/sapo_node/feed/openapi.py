"""The OpenAPI description of the feed. msgspec makes its schemas of the types in `feed.messages`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec.json import schema_components

from sapo_node.feed.access import LEASE_SECONDS, MAX_WAIT, TRAINER, TRAINER_HEADER
from sapo_node.feed.messages import Completed, Done, GoBackRefused, Started, StepReport, Work

_PATHS: Mapping[str, tuple[str, type, str]] = {
    "/v1/completions": ("Send the completions of one prompt.", Completed, "completed"),
    "/v1/report": ("Report a step of training.", StepReport, "reported"),
    "/v1/started": ("Report the step of the trainer's weights.", Started, "started"),
    "/v1/refused": ("Refuse to go back.", GoBackRefused, "refused"),
}
_ERRORS = {
    "400": "The request is not HTTP/1.1.",
    "401": "The token is missing or wrong.",
    "403": "Another trainer has the lease of the feed.",
    "409": "The answer does not fit the work that the node has now. Ask for work.",
    "413": "The body is too long.",
    "422": "The body, the name of the trainer, or a parameter is malformed.",
}
_OF_ALL = ("400", "401", "403", "422")
_REFERENCE = "#/components/schemas/{name}"


@cache
def description() -> dict[str, Any]:
    """The whole description, as JSON."""
    kinds = [Work, Done, *(kind for _, kind, _ in _PATHS.values())]
    _, schemas = schema_components(kinds, ref_template=_REFERENCE)
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
                "summary": "Get the work of the trainer.",
                "operationId": "work",
                "parameters": [wait, trainer],
                "responses": _responses(Work, *_OF_ALL),
            }
        },
        "/v1/lease": {
            method: {
                "summary": summary,
                "operationId": name,
                "parameters": [trainer],
                "responses": _responses(Done, *_OF_ALL),
            }
            for method, name, summary in (
                ("post", "renewed", f"Keep the lease for {LEASE_SECONDS:g} s more, as every request does."),
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
                "requestBody": {"required": True, "content": _content(kind)},
                "responses": _responses(Done, *_ERRORS),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "sapo-node feed", "version": "1", "description": "Verified rollouts for a foreign trainer."},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _responses(kind: type, *errors: str) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    refused = {status: {"description": _ERRORS[status], "content": text} for status in errors}
    return {"200": {"description": "Done.", "content": _content(kind)}} | refused


def _content(kind: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(name=kind.__name__)}}}
