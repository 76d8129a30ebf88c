"""Published workflows: descriptions by which other processes list and start them; and cheap counts.

    entry := crc32 body        crc32: 4 bytes, high byte first, of the name in UTF-8 followed by the body

The body is the map of `v` (1), `version`, `doc`, `form`, `declared` and `published_us`.
"""

from __future__ import annotations

from typing import Any, Final
from zlib import crc32

import msgspec

from holdfast.drivers import Plan
from holdfast.errors import DamagedData, InvalidInput, LimitExceeded
from holdfast.forms.form import Form
from holdfast.limits import CATALOG_ENTRY_BYTES_MAX
from holdfast.model.views import Counts, WorkflowInfo
from holdfast.operations.context import Access, StoreContext
from holdfast.operations.views import decode_body, encode_body, moment
from holdfast.store.capabilities import Catalog
from holdfast.store.port import RunCounts

VERSION: Final = 1


class Description(msgspec.Struct, frozen=True):
    """What is published of a workflow."""

    version: int
    doc: str
    form: Form
    declared: bool = False


class _Stored(msgspec.Struct, frozen=True):
    """The parts of a stored description that are read."""

    v: int
    version: int
    doc: str
    form: Any
    declared: bool
    published_us: int


def counts(access: Access) -> Plan[Counts]:
    """Count runs by status, and open gates; cheaper than `stats`.

    Example:
        store.counts().open_gates
    """
    port = access.core.port
    counted: RunCounts = yield port.count_runs
    return Counts(runs=counted.runs, open_gates=(yield port.open_gates), estimated=tuple(sorted(counted.estimated)))


def workflows(access: Access) -> Plan[list[WorkflowInfo]]:
    """List the published workflows by name; empty if the store cannot keep any.

    `app.publish_workflows` and every worker publish theirs. The form describes the input of a workflow.

    Example:
        [(workflow.name, workflow.version) for workflow in store.workflows()]
    """
    return (yield lambda: read_catalog(access.core))  # type: ignore[no-any-return]


def read_catalog(core: StoreContext) -> list[WorkflowInfo]:
    """The published workflows, checked."""
    if not isinstance(core.port, Catalog):
        return []
    return [_info(name, entry) for name, entry in core.port.published().items()]


def catalog_damage(core: StoreContext) -> list[DamagedData]:
    """The damage of published workflows."""
    found = []
    try:
        entries = core.port.published() if isinstance(core.port, Catalog) else {}
    except DamagedData as damage:
        return [damage]
    for name, entry in entries.items():
        try:
            _info(name, entry)
        except DamagedData as damage:
            found.append(damage)
    return found


def publish(core: StoreContext, described: dict[str, Description]) -> list[str]:
    """Publish what differs from what is published; return the names. A damaged entry is replaced."""
    if not isinstance(core.port, Catalog):
        raise InvalidInput(f"{core.port.url} cannot keep published workflows; its store has no catalog")
    stored, now_us = core.port.published(), core.clock.now_us()
    new = {}
    for name, one in described.items():
        if name in stored and _is_same(name, stored[name], one):
            continue
        body = {"v": VERSION, "version": one.version, "doc": one.doc, "form": one.form.as_data()}
        body |= {"declared": one.declared, "published_us": now_us}
        entry = encode_body(core, body, "a published workflow")
        if len(entry) > CATALOG_ENTRY_BYTES_MAX:
            raise LimitExceeded(
                f"the description of workflow {name!r} has {len(entry)} bytes, at most {CATALOG_ENTRY_BYTES_MAX} are "
                "allowed; shorten its docstring or its input"
            )
        new[name] = _checksum(name, entry) + entry
    if new:
        core.port.publish(new)
    return sorted(new)


def _is_same(name: str, entry: bytes, one: Description) -> bool:
    try:
        info = _info(name, entry)
    except DamagedData:
        return False
    return (info.version, info.doc, info.declared) == (one.version, one.doc, one.declared) and info.form == one.form


def _info(name: str, entry: bytes) -> WorkflowInfo:
    place = f"published workflow {name!r}"
    if len(entry) < 4 or _checksum(name, entry[4:]) != entry[:4]:
        raise DamagedData(place, "it does not match its checksum")
    try:
        found = msgspec.convert(decode_body(entry[4:], place), _Stored)
        if found.v != VERSION:
            raise DamagedData(place, f"it has version {found.v}, this Holdfast supports {VERSION}")
        form = Form.from_data(found.form)
    except (msgspec.ValidationError, InvalidInput) as error:
        raise DamagedData(place, f"it is not the description of a workflow ({error})") from error
    return WorkflowInfo(
        name=name,
        version=found.version,
        doc=found.doc,
        form=form,
        declared=found.declared,
        published_at=moment(found.published_us),
    )


def _checksum(name: str, body: bytes) -> bytes:
    return crc32(body, crc32(name.encode())).to_bytes(4, "big")
