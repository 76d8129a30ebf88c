"""The parts of a run during import and export, and what the converters share.

The state of an imported checkpoint is the whole JSON object of its file, so an export can write every field again. A
run is imported in one commit: the store gets all of it, or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from holdfast.engine.gates import Gate
from holdfast.errors import Conflict, DamagedFile, InvalidId, InvalidInput
from holdfast.formats.folder import Folder
from holdfast.formats.schema import JsonObject, read_json, write_json
from holdfast.forms import Form, form_of
from holdfast.forms.json_schema import DIALECT
from holdfast.ids import check_id
from holdfast.limits import SHOWN_BYTES_MAX, STEP_MAX
from holdfast.model.commit import Commit, NewCheckpoint, NewEffect, NewEntry, NewGate, NewRun
from holdfast.model.views import Checkpoint, Effect, Entry, Problem, RunInfo
from holdfast.operations.context import StoreContext
from holdfast.operations.state_commit import BulkEncoder
from holdfast.operations.views import encode_body, metadata_pairs
from holdfast.store.journal_prune import PRUNED, pruned_body
from holdfast.store.search import write_metadata

FORMAT: Final = "format"
_ENGINE: Final = frozenset({"started", "step", "asked", "answered", "version", "rolled_back", "forked"})
ENDS: Final = frozenset({"completed", "failed", "cancelled"})
FILE: Final = "file"
"""The metadata of an imported run has the system under FORMAT, and the name of the file under FILE."""


class Step(msgspec.Struct):
    """A checkpoint to be created."""

    state: JsonObject
    file: str
    step: int | None = None
    next_node: str | None = None
    covers: int | None = None
    status: str = "paused"
    checkpoint_id: str = ""
    created_us: int | None = None
    resume: JsonObject | None = None
    """What the engine needs to resume from it."""


class Parts(msgspec.Struct):
    """A run to be created."""

    run_id: str
    workflow: str
    status: str
    file: str
    entries: list[NewEntry] = []
    steps: list[Step] = []
    effects: list[NewEffect] = []
    gates: list[NewGate] = []
    about: JsonObject = {}
    """More metadata."""


class Source(NamedTuple):
    """A file, or a directory of one run, that can be imported."""

    place: str
    read: Callable[[StoreContext, list[Problem]], Parts]
    """Raises a HoldfastError if it cannot be imported; damaged parts of it are added to the list."""


class WholeRun(NamedTuple):
    """A run to be exported."""

    run: RunInfo
    checkpoints: list[Checkpoint[Any]]
    """Oldest first, of the default lane."""
    entries: list[Entry]
    effects: list[Effect]
    answered: bool
    """Whether a gate of the run has been answered."""


class File(NamedTuple):
    """A file to be written."""

    name: tuple[str, ...]
    data: bytes
    is_written: bool = False
    """Whether the file already has this content."""


class Converter(Protocol):
    """Converts the files of one system to runs, and runs to its files."""

    def sources(self, path: str) -> list[Source]:
        """Return the sources below `path`."""
        ...

    def files(self, whole: WholeRun) -> list[File]:
        """Return the files of a run. Raises InvalidInput if it cannot be one of that system."""
        ...

    def merge_with_existing(self, folder: Folder, whole: WholeRun, files: list[File], *, replace: bool) -> list[File]:
        """Return the files adapted to existing ones. The caller holds the folder's lock.

        Raises Conflict if the original would repeat work, or lose some, because of them.
        """
        ...


class NoConflictMixin:
    """A converter whose files need no adaptation to existing ones."""

    def merge_with_existing(self, folder: Folder, whole: WholeRun, files: list[File], *, replace: bool) -> list[File]:  # noqa: ARG002
        return files


def commit_of(core: StoreContext, system: str, parts: Parts) -> Commit:
    """Return the commit that creates the run."""
    check_id("run_id", parts.run_id)
    for name in (*(step.checkpoint_id for step in parts.steps if step.checkpoint_id), *(e.key for e in parts.effects)):
        check_id("an imported id", name)
    checkpoints, chunks = _checkpoints(parts.steps)
    return Commit(
        parts.run_id,
        core.ids.token(8),
        create=NewRun(required=True),
        workflow=check_id("workflow", parts.workflow),
        status=parts.status,
        metadata=metadata_pairs({FORMAT: system, FILE: parts.file, **parts.about}),
        entries=tuple(parts.entries),
        checkpoints=checkpoints,
        chunks=core.chunk_rows(chunks),
        effects=tuple(parts.effects),
        gates=tuple(parts.gates),
    )


def _checkpoints(steps: Iterable[Step]) -> tuple[tuple[NewCheckpoint, ...], dict[bytes, bytes]]:
    """Return the checkpoints, and the chunks of all of them, each once."""
    encoder = BulkEncoder()
    found = []
    for step in steps:
        metadata = {FILE: step.file} | ({"holdfast": step.resume} if step.resume else {})
        found.append(
            NewCheckpoint(
                step.checkpoint_id,
                encoder.encode_state(step.state),
                step=step.step,
                next_node=id_or_none(step.next_node),
                covers=step.covers,
                status=step.status,
                metadata=write_metadata(metadata_pairs(metadata)),
                created_us=step.created_us,
            )
        )
    return tuple(found), encoder.chunks


def entry(core: StoreContext, data: JsonObject, created_us: int | None = None, *, for_engine: bool = False) -> NewEntry:
    """Return a journal entry. Kinds that the engine reads when it resumes a run need `for_engine`."""
    kind = check_id("an entry's kind", data["kind"])
    if kind == PRUNED or (kind in _ENGINE and not for_engine):
        raise InvalidInput(f"an imported entry cannot have the kind {kind!r}")
    return NewEntry(kind, encode_body(core, data, "a journal entry"), created_us)


def resume_after(entries: int) -> JsonObject:
    """Return the engine's metadata of a checkpoint, which distinguishes its state from one saved by a user."""
    return {"spans": [[1, entries]], "loops": [], "needs": [], "epoch": 0, "version": 1}


def missing_entries(after: int, through: int) -> NewEntry:
    """Return the entry that represents missing ones: the positions after `after` up to `through`."""
    return NewEntry(PRUNED, pruned_body(through), positions=through - after)


def started_entry(
    core: StoreContext, workflow: str, *args: object, created_us: int | None = None, kwargs: JsonObject | None = None
) -> NewEntry:
    """Return the first entry of a workflow's run."""
    data = {"kind": "started", "workflow": workflow, "version": 1, "args": list(args), "kwargs": kwargs or {}}
    return entry(core, data, created_us, for_engine=True)


def is_continued(whole: WholeRun) -> bool:
    """Whether the engine has advanced the run since it was imported."""
    return any(entry.kind in ENDS or ("call" in entry.data and entry.kind != "asked") for entry in whole.entries)


def require_same_id(run_id: str, inside: object) -> None:
    """Refuse the state of a fork or a copy that still has its old id, so that it does not replace the old file."""
    if inside != run_id:
        raise InvalidInput(f"the state of run {run_id!r} has the id {inside!r}; save it with its own id first")


def id_or_none(value: object) -> str | None:
    """Return a value if it is a valid id, else None."""
    try:
        return check_id("", value)
    except InvalidId:
        return None


def step_or_none(value: int) -> int | None:
    """Return a step's number if it is a valid step, else None."""
    return value if 0 <= value <= STEP_MAX else None


def root_of(path: str, *below: str) -> str:
    """Return the original's directory below a home directory if it exists, else `path` itself."""
    inner = os.path.join(path, *below)
    return inner if os.path.isdir(inner) else path


def read_source(folder: Folder, name: str) -> bytes:
    """Return the content of a file that was listed before."""
    data = folder.read(name)
    if data is None:
        raise DamagedFile(folder.at(name), "it was removed during the import")
    return data


CALL: Final = "ask#1"
_LONG: Final = ("textarea", "multiline", "long_text", "markdown")
_TYPE_NAMES: Final = {
    "boolean": ("bool", "boolean", "checkbox", "confirm", "yes_no"),
    "integer": ("int", "integer"),
    "number": ("number", "float"),
    "string": ("", "text", "string", "str", "email", "url", "date", "select", *_LONG),
}
_TYPES: Final = {name: kind for kind, names in _TYPE_NAMES.items() for name in names}
_RECOVERY: Final = "recovery"
_OUTCOMES: Final = ("happened", "did not happen")
_NAMES_MAX: Final = 500
_SEVERAL: Final = ("multi_select", "multiselect", "multi-select", "multi_choice", "checkboxes")


def open_gate(
    core: StoreContext, prompt: str, form: Form, show: object, created_us: int | None
) -> tuple[NewEntry, NewGate]:
    """Return the entry of the question, and the gate."""
    body = Gate(CALL, prompt, form, _show_if_small(show)).body()
    asked = {"kind": "asked", "call": CALL, "gate": CALL, "prompt": prompt}
    asked_entry = NewEntry("asked", encode_body(core, asked, "a journal entry"), created_us)
    return asked_entry, NewGate(CALL, encode_body(core, body, "a gate"))


def recovery_gate(core: StoreContext, unsafe: dict[str, JsonObject]) -> NewGate:
    """Return the gate of a run that must not resume before a person has found out the outcome of these effects."""
    fields = {
        name: {"enum": list(_OUTCOMES), "title": str(effect.get("unsafe_pending_reason") or name)}
        for name, effect in unsafe.items()
    }
    form = _form({"type": "object", "properties": fields, "required": list(fields)})
    prompt = f"What is the outcome of {', '.join(unsafe)[:_NAMES_MAX]}? The results could not be recorded."
    show = _show_if_small({"unsafe_pending": list(unsafe.values())})
    body = Gate(_RECOVERY, prompt, form, show, purpose="in_doubt").body()
    return NewGate(_RECOVERY, encode_body(core, body, "a gate"))


def _show_if_small(show: object) -> object:
    """Return the value that is shown with a question; None if it is too large for that."""
    return show if len(write_json(show)) <= SHOWN_BYTES_MAX else None


def form_of_fields(fields: list[JsonObject]) -> Form:
    """Return the form of fields as CAR declares them. As in CAR, an answer may have other fields as well."""
    return _form(schema_of_fields(fields))


def schema_of_fields(fields: list[JsonObject]) -> JsonObject:
    """Return the JSON Schema of fields as CAR declares them."""
    return {
        "type": "object",
        "properties": {field["name"]: _property(field) for field in fields},
        "required": [field["name"] for field in fields if field.get("required")],
    }


def _property(field: JsonObject) -> JsonObject:
    kind = str(field.get("field_type") or "").lower()
    options = [option for option in field.get("options") or () if option is not None]
    found: JsonObject = {"type": _TYPES[kind]} if kind in _TYPES else {}  # an unknown type accepts any value
    if kind in _SEVERAL:
        found = {"type": "array", "items": {"enum": options} if options else {}}
    elif options:
        found = {"enum": options}
    if field.get("label"):
        found["title"] = field["label"]
    if kind == "date" and not options:
        found["format"] = "date"
    if kind in _LONG and not options:
        found["x-multiline"] = True
    return found


def form_of_request(request: JsonObject) -> Form:
    """Return the form of a SimpleAgents question: a choice, a text, or a form with a schema."""
    kind, options = request.get("input_type"), request.get("options")
    if kind == "choice" and isinstance(options, list) and options:
        return _form({"oneOf": [_choice(option) for option in options]})
    if kind == "form" and isinstance(request.get("form_schema"), dict):
        return _form({"type": "object", **request["form_schema"]})
    return form_of(str)


def _choice(option: object) -> JsonObject:
    value = option.get("value") if isinstance(option, dict) else option
    label = option.get("label") if isinstance(option, dict) else None
    return {"const": value, "title": str(value if label is None else label)}


def _form(schema: JsonObject) -> Form:
    """Return the form; if the original's description is not a valid schema, one that accepts any answer."""
    try:
        return form_of({"$schema": DIALECT, **schema})
    except InvalidInput:
        return form_of(None)


_LINES: Final = ".ndjson"


def is_of_lines(file: File) -> bool:
    """Whether it is a file of JSON lines, which may have any size."""
    return file.name[-1].endswith(_LINES)


def is_same(folder: Folder, file: File) -> bool | None:
    """Whether the file exists with the same content; None if it does not exist."""
    if folder.identity(*file.name) is None:
        return None
    place = folder.at(*file.name)
    try:
        if is_of_lines(file):
            return _existing_lines(folder, file) == [read_json(line, place) for line in file.data.split(b"\n") if line]
        found = folder.read(*file.name)
        return None if found is None else bool(read_json(found, place) == read_json(file.data, place))
    except DamagedFile:
        return False


def is_written_already(folder: Folder, file: File, *, replace: bool) -> bool:
    """Whether the file exists with the same content. Raises Conflict if its content differs and `replace` is False."""
    same = is_same(folder, file)
    if same is False and not replace:
        raise Conflict(
            f"{folder.at(*file.name)} exists with other content",
            "export to another directory, or pass replace=True",
            hint_code="replace_files",
        )
    return bool(same)


def _existing_lines(folder: Folder, file: File) -> list[object]:
    place, found = folder.at(*file.name), []
    for line in folder.lines(*file.name):
        if line.data is None:
            raise DamagedFile(place, "it has a line that is too long")
        if line.data.strip():
            found.append(read_json(line.data, place))
    return found
