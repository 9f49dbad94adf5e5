"""The OpenAPI 3.1 document: every operation of the server, from the types that validate requests.

routes and operations of all *_api.py ─▶ paths;  msgspec types ─▶ JSON Schema ─▶ components
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from regard import __version__
from regard.serve.errors import NATIVE, ErrorShape

Schema = dict[str, Any]
JSON, FORM, MULTIPART, EVENTS = (
    *("application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/event-stream"),
)
DESCRIPTION = "The APIs of OpenAI, LibreTranslate and text-embeddings-inference, and one of its own."
ERRORS = {
    400: "The body is malformed, or a value is invalid.",
    401: "The API key is missing or wrong.",
    403: "The host or the origin of the request is not allowed.",
    404: "No model has this name.",
    408: "The body came too slowly.",
    413: "The body is too large, or the input exceeds the context of the model.",
    415: "The content type is not accepted.",
    422: "A value is invalid.",
    429: "The queue is full.",
    500: "The server or the model failed.",
    501: "The server was started without what this needs.",
    503: "The server shuts down, or cannot load the model.",
    504: "The answer was not ready before the deadline.",
}
EVENT: Schema = {  # tools of OpenAPI validate every server-sent event as an object
    "type": "object",
    "properties": {"data": {"type": "string", "description": "a part of the answer in JSON, or [DONE]"}},
    "required": ["data"],
}
RETRY_AFTER: Schema = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}}


@dataclass(frozen=True)
class Operation:
    """One method of one path.

    Attributes:
        request: type of the body; None without one.
        response: type of the answer; None if it has no content, str for a text.
        errors: the shape of its errors.
        multipart: the body is a form with the part `file` and the fields of `request`.
        form: the body may also be an urlencoded form.
        query: type whose fields are query parameters.
        streams: the answer may also be server-sent events.
        content_type: of the answer, if it is no JSON; several ones alternate.
    """

    method: str
    path: str
    summary: str
    request: Any
    response: Any
    errors: ErrorShape = NATIVE
    tags: Sequence[str] = ()
    multipart: bool = False
    form: bool = False
    query: Any = None
    streams: bool = False
    content_type: str | tuple[str, ...] = JSON

    @property
    def content_types(self) -> tuple[str, ...]:
        kinds = (self.content_type,) if isinstance(self.content_type, str) else self.content_type
        return (*kinds, EVENTS) if self.streams else kinds

    @property
    def types(self) -> list[Any]:
        """The types that need a schema."""
        kinds = (self.request, self.response, self.query, self.errors.kind)
        return [kind for kind in kinds if kind is not None]


def openapi_document(operations: Iterable[Operation]) -> Schema:
    """The document as JSON values."""
    operations = [*operations]
    kinds = [kind for operation in operations for kind in operation.types]
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schema_of = SchemaTable(kinds, [*schemas], components)
    paths: dict[str, Schema] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = describe_operation(operation, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "regard", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


class SchemaTable:
    """The schema of each type; types need not be hashable."""

    def __init__(self, kinds: Sequence[Any], schemas: Sequence[Schema], components: Mapping[str, Schema]):
        self._schemas = {repr(kind): schema for kind, schema in zip(kinds, schemas, strict=True)}
        self._components = components

    def component(self, kind: Any) -> Schema:
        """The schema of a Struct itself, instead of a reference to it."""
        return self._components[self[kind]["$ref"].rpartition("/")[2]]

    def __getitem__(self, kind: Any) -> Schema:
        return self._schemas[repr(kind)]


def describe_operation(operation: Operation, schema_of: SchemaTable) -> Schema:
    parameters = path_parameters(operation.path)
    if operation.query is not None:
        parameters += query_parameters(operation.query)
    entry: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{operation.method.lower()}{operation.path}").rstrip("_"),
        "summary": operation.summary,
        "tags": [*operation.tags],
        "parameters": parameters,
        "responses": {"200": describe_answer(operation, schema_of), **describe_errors(operation, schema_of)},
    }
    if operation.request is not None:
        entry["requestBody"] = {"required": True, "content": describe_body(operation, schema_of)}
    return entry


def path_parameters(path: str) -> list[Schema]:
    names = re.findall(r"{(\w+)(?::\w+)?}", path)
    text: Schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": text} for name in names]


def query_parameters(kind: Any) -> list[Schema]:
    """One parameter for each field of a Struct."""
    [_], components = msgspec.json.schema_components([kind])
    [schema] = components.values()
    return [
        {"name": name, "in": "query", "required": name in schema["required"], "schema": value}
        for name, value in schema["properties"].items()
    ]


def describe_body(operation: Operation, schema_of: SchemaTable) -> Schema:
    schema = schema_of[operation.request]
    if operation.multipart:
        fields, file = schema_of.component(operation.request), {"type": "string", "format": "binary"}
        properties, required = {**fields["properties"], "file": file}, [*fields["required"], "file"]
        return {MULTIPART: {"schema": {**fields, "properties": properties, "required": required}}}
    return {name: {"schema": schema} for name in ((JSON, FORM) if operation.form else (JSON,))}


def describe_answer(operation: Operation, schema_of: SchemaTable) -> Schema:
    if operation.response is None:
        return {"description": "No content."}
    schemas = {JSON: schema_of[operation.response], EVENTS: EVENT}
    content = {name: {"schema": schemas.get(name, {"type": "string"})} for name in operation.content_types}
    return {"description": "The answer.", "content": content}


def describe_errors(operation: Operation, schema_of: SchemaTable) -> Schema:
    content = {JSON: {"schema": schema_of[operation.errors.kind]}}
    unused = {400, 422} - {400, operation.errors.invalid}
    responses: Schema = {}
    for status, description in ERRORS.items():
        if status not in unused:
            headers = RETRY_AFTER if status == 429 else {}
            responses[str(status)] = {"description": description, "headers": headers, "content": content}
    return responses
