"""The OpenAPI 3.1 document, made of the table of operations, their structs and their docstrings."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from typing import Any, Final

import msgspec

from holdfast.web.api.examples import PATHS, RESULTS
from holdfast.web.api.failure import STATUSES, Error, ErrorDetail
from holdfast.web.api.operation import PREFIX, Operation
from holdfast.web.api.operation_table import OPERATIONS
from holdfast.web.api.schemas import Id

Json = dict[str, Any]
_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = """\
Runs, gates and workflows of a Holdfast store. Changes are recorded at once and carried out by workers.

GET needs a session cookie of the page or a bearer token, everything else a bearer token (`holdfast web token`). What
the user may not see does not exist for it. Ids in paths are percent-encoded, slashes too. Unknown query parameters and
unknown fields are refused. Values of the user that JSON cannot express are objects with one key, such as
`{"$datetime": …}`; masked values are `"•••"`. Times are in UTC."""

_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_TAGS: Final = {
    "runs": "Start runs, read them, and change their course.",
    "gates": "Read, answer and reassign gates.",
    "store": "The store as a whole, the user, and this document.",
}


def document(root: str = "") -> Json:
    """The document; `root` is the path at which the page is mounted."""
    return {**_document(), "servers": [{"url": root or "/"}]}


@functools.cache
def _document() -> Json:
    structs: list[Any] = [Error, ErrorDetail]
    for operation in OPERATIONS:
        structs += [kind for kind in (operation.returns, operation.body) if kind is not None]
    structs = list(dict.fromkeys(structs))
    _, components = msgspec.json.schema_components(structs, ref_template=_REF)
    known = {kind.__name__: kind for kind in _all_structs(structs)}
    schemas = {name: _describe(_with_items(schema), known[name]) for name, schema in sorted(components.items())}
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": "1", "description": _ABOUT, "license": _LICENSE},
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {str(status): _error(status) for status in _documented_statuses()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A token of `holdfast web token`."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "holdfast",
                    "description": "The session of the page; its name may differ. Only for GET.",
                },
            },
        },
    }


def _documented_statuses() -> list[int]:
    return sorted({status for operation in OPERATIONS for status in operation.statuses})


def _operation(operation: Operation) -> Json:
    summary, _, more = " ".join((operation.call.__doc__ or "").split()).partition(". ")
    found: Json = {
        "operationId": operation.name,
        "tags": [_tag(operation.path)],
        "summary": summary.rstrip("."),
        "description": f"{more} Needs the role `{operation.role}`.".strip(),
        "security": [{"bearer": []}] if operation.changes else [{"bearer": []}, {"session": []}],
    }
    parameters = [*_path_parameters(operation), *_query_parameters(operation)]
    if parameters:
        found["parameters"] = parameters
    if operation.body is not None:
        content: Json = {"schema": {"$ref": _REF.format(name=operation.body.__name__)}, "example": operation.example}
        required = operation.body.__name__ != "Nothing"
        found["requestBody"] = {"required": required, "content": {"application/json": content}}
    found["responses"] = _responses(operation)
    return found


def _tag(path: str) -> str:
    if "/gates" in path:
        return "gates"
    return "runs" if path.startswith("/runs") else "store"


def _path_parameters(operation: Operation) -> list[Json]:
    schema = msgspec.json.schema(Id)
    schema.pop("pattern")
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schema,
            "description": PATHS[name][1],
            "example": PATHS[name][0],
        }
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]


def _query_parameters(operation: Operation) -> list[Json]:
    kind = operation.query
    (_,), components = msgspec.json.schema_components([kind], ref_template=_REF)
    schema = _with_items(components[kind.__name__])
    docs = _field_docs(kind)
    given = operation.example if operation.body is None and operation.example else {}
    found = []
    for name, part in schema.get("properties", {}).items():
        one: Json = {"name": name, "in": "query", "required": name in schema["required"], "schema": part}
        one |= {"description": docs[name]} if name in docs else {}
        one |= {"example": given[name]} if name in given else {}
        found.append(one)
    return found


def _with_items(schema: Any) -> Any:
    """The schema, where an array of anything has `items`: some generators of clients leave it out otherwise."""
    if isinstance(schema, list):
        return [_with_items(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_items(part) for name, part in schema.items()}
    return found | {"items": {}} if found.get("type") == "array" and "items" not in found else found


def _responses(operation: Operation) -> Json:
    content: Json = {"schema": {"type": "string"} if operation.media != "application/json" else {"type": "object"}}
    if operation.returns is not None:
        name = operation.returns.__name__
        content = {"schema": {"$ref": _REF.format(name=name)}, "example": RESULTS[name]}
    text = (inspect.getdoc(operation.returns) if operation.returns else None) or "As its type says."
    success: Json = {"description": " ".join(text.split()), "content": {operation.media: content}}
    found: Json = {"200": success}
    if operation.created:
        location = {"description": "The address of the run.", "schema": {"type": "string"}}
        found["201"] = {**success, "headers": {"Location": location}}
    return found | {str(status): {"$ref": f"#/components/responses/{status}"} for status in operation.statuses}


def _error(status: int) -> Json:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {"description": STATUSES[status], "content": content}


# --- docstrings ------------------------------------------------------------------------------------------------------


def _all_structs(structs: list[Any]) -> list[Any]:
    """The structs, and those in their fields."""
    found: list[Any] = []
    todo = list(structs)
    while todo:
        kind = todo.pop()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if kind not in found:
                found.append(kind)
                todo += [field.type for field in msgspec.structs.fields(kind)]
        else:
            todo += getattr(kind, "__args__", ())
    return found


def _describe(schema: Json, kind: type[msgspec.Struct]) -> Json:
    """The schema of a struct, with the docstrings of its fields as descriptions."""
    docs = _field_docs(kind)
    properties = {
        name: {**part, "description": docs[name]} if name in docs else part
        for name, part in schema.get("properties", {}).items()
    }
    return {**schema, "description": " ".join((inspect.getdoc(kind) or "").split()), "properties": properties}


def _field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstrings below the fields of a struct, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base is msgspec.Struct or not issubclass(base, msgspec.Struct):
            continue
        try:
            [body] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except OSError:  # installed without its source
            continue
        assert isinstance(body, ast.ClassDef), "the source of a class"
        for field, text in zip(body.body, body.body[1:], strict=False):
            if not isinstance(text, ast.Expr) or not isinstance(text.value, ast.Constant):
                continue
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found
