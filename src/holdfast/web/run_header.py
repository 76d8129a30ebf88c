"""What all pages of a run share: its status, what it waits for, the actions it allows, and the tabs."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.errors import DamagedData, HoldfastError
from holdfast.ids import display_name
from holdfast.inspect.calls import has_stages
from holdfast.inspect.threads import INTERRUPT, THREADS
from holdfast.inspect.timeline_page import TimelinePage, read_newest
from holdfast.inspect.views import Row, RunStatus, Waiting
from holdfast.model.rows import FAILED, PAUSED, READY, RUNNING, TERMINAL, WAITING
from holdfast.model.views import GateInfo, RunInfo
from holdfast.operations.read import known_run
from holdfast.operations.views import run_info
from holdfast.state.json_preview import Readable
from holdfast.store.port import Select
from holdfast.web.gate_view import info_url
from holdfast.web.markdown import plain_line
from holdfast.web.mask import Masker
from holdfast.web.run_actions import with_warning
from holdfast.web.tree import one_line
from holdfast.web.workflow_catalog import input_names

if TYPE_CHECKING:
    from holdfast.web.site import Context

_ENTRIES: Final = 40
"""How many entries are read for the header of a page that shows no timeline."""
_SENTENCE_CHARS: Final = 600
_TABS: Final = (
    ("Timeline", ""),
    ("Journal", "journal"),
    ("State", "state"),
    ("Ledger", "ledger"),
    ("Family", "family"),
    ("Graph", "graph"),
    ("Logs", "logs"),
)


class Tab(NamedTuple):
    """A page of the run."""

    name: str
    url: str
    is_here: bool


class Wait(NamedTuple):
    """Something the run waits for."""

    reason: str
    what: str
    text: str
    url: str
    """The page of the gate or of the child run."""
    since: dt.datetime | None
    until: dt.datetime | None


class Button(NamedTuple):
    """An action: a form that is sent at once, or a link to a page that asks first."""

    label: str
    url: str
    is_form: bool
    kind: str = ""


class RunHeader(NamedTuple):
    """A run as its pages show it."""

    run_id: str
    info: RunInfo
    standing: RunStatus | None
    sentence: str
    waits: list[Wait]
    metadata: list[tuple[str, str]]
    buttons: list[Button]
    tabs: list[Tab]
    problem: str
    """Damage that prevents reading all of it."""
    is_workflow: bool
    is_thread: bool
    is_declared: bool
    is_whole: bool
    """Whether the times describe the whole run."""
    worked_s: float
    waited_s: float
    idle_s: float
    forked_from: str


def open_run(c: Context, tab: str, *, entries: int = _ENTRIES) -> OpenRun:
    """Read a run for one of its pages."""
    c.section = "Runs"
    return OpenRun(c, c.run_id(), tab, entries)


class OpenRun:
    """A run that a page shows: its header, and the newest part of its timeline."""

    def __init__(self, c: Context, run_id: str, tab: str, entries: int) -> None:
        self.c = c
        self.run_id = run_id
        self.tab = tab
        self.row = known_run(c.store.access.core, run_id)
        self.page: TimelinePage | None = None
        self.masker = Masker(c.site.mask)
        """Knows what is masked in the input and the newest state of the run."""
        self.problem = ""
        try:
            self.page = read_newest(c.store, run_id, limit=entries)
        except DamagedData as error:
            self.problem = str(error)
        if self.masker.is_active:
            self._learn()

    def _learn(self) -> None:
        core = self.c.store.access.core
        self.masker.parameters = input_names(self.c, self.row)
        for row in self.rows:
            self.masker.input(row.result) if row.kind == "started" else self.masker.learn(row.result)
        found = core.port.checkpoint(self.run_id, Select()) if self.row.head else None
        if found is not None and found.checkpoint is not None:
            state = Readable().state(found.checkpoint.root, core.fetch(self.row.family))
            self.masker.learn(state)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows of the newest page."""
        return self.page.timeline.rows if self.page is not None else ()

    @property
    def is_workflow(self) -> bool:
        """Whether workers execute it."""
        return bool(self.rows) and self.rows[0].kind == "started"

    def data(self, title: str, **more: Any) -> dict[str, Any]:
        """The data of a page: the header, and what the page adds."""
        mark = mark_of(self.row.commit_id)
        live = self.c.run_url(self.run_id, "live", mark=mark)
        return {"title": title, "head": self.header(), "run_id": self.run_id, "mark": mark, "live": live, **more}

    def header(self) -> RunHeader:
        """The header of the page."""
        info = run_info(self.row)
        seen = None if self.page is None else self.page.timeline
        is_workflow = self.is_workflow
        is_declared = has_stages(self.rows) or any(row.kind == "definition" for row in self.rows)
        metadata = self.masker.value(info.metadata)
        return RunHeader(
            run_id=self.run_id,
            info=info,
            standing=None if seen is None else seen.standing,
            sentence=self._sentence(),
            waits=self._waits(),
            metadata=[(str(key), one_line(part, 200)) for key, part in metadata.items()],
            buttons=self._buttons(info.status) if is_workflow and self.c.user.has_role("operator") else [],
            tabs=self._tabs(is_declared),
            problem=self.masker.text(self.problem),
            is_workflow=is_workflow,
            is_thread=info.workflow == THREADS,
            is_declared=is_declared,
            is_whole=seen is not None and not seen.left_out,
            worked_s=0 if seen is None else seen.worked_us / 1e6,
            waited_s=0 if seen is None else seen.waited_us / 1e6,
            idle_s=0 if seen is None else seen.idle_us / 1e6,
            forked_from=info.forked_from or "",
        )

    def _gates(self) -> dict[str, GateInfo]:
        return {} if self.page is None else {gate.gate: gate for gate in self.page.timeline.gates}

    def _sentence(self) -> str:
        """The status as a sentence."""
        sentence = self.row.status.replace("_", " ")
        if self.page is not None:
            sentence = self.page.timeline.standing.sentence
            for gate in self._gates().values():
                sentence = sentence.replace(repr(gate.prompt), repr(plain_line(self.masker.gate(gate).prompt)))
        sentence = one_line(self.masker.text(sentence), _SENTENCE_CHARS).rstrip(".")
        if self.row.status == READY and self.is_workflow:
            sentence = with_warning(self.c, self.row.workflow, sentence)
        return f"{sentence[:1].upper()}{sentence[1:]}."

    def _waits(self) -> list[Wait]:
        gates = self._gates()
        waiting = () if self.page is None else self.page.timeline.standing.waiting
        return [self._wait(one, gates.get(one.what)) for one in waiting]

    def _wait(self, one: Waiting, gate: GateInfo | None) -> Wait:
        if one.reason == "person" and gate is not None:
            reason, name = ("Interrupt", gate.gate) if gate.purpose == INTERRUPT else ("Gate", gate.name)
            return Wait(reason, name, "", info_url(self.c, gate), one.since, one.until)
        if one.reason == "child":
            url = self.c.run_url(one.what) if is_visible(self.c, one.what) else ""
            return Wait("Child run", one.what, "", url, one.since, one.until)
        if one.reason == "start":
            return Wait("Start", "of the run", "", "", one.since, one.until)
        words = {"event": "Event", "timer": "Timer", "retry": "Next attempt of"}
        text = self.masker.text(one.text) if one.reason == "retry" else ""
        what = one.what if one.reason == "event" else display_name(one.what)
        return Wait(words.get(one.reason, one.reason), what, text, "", one.since, one.until)

    def _tabs(self, is_declared: bool) -> list[Tab]:
        return [
            Tab(name, self.c.run_url(self.run_id, *([path] if path else [])), path == self.tab)
            for name, path in _TABS
            if path != "graph" or is_declared
        ]

    def _buttons(self, status: str) -> list[Button]:
        def url(path: str) -> str:
            return self.c.run_url(self.run_id, path)

        found = [Button("Pause", url("pause"), is_form=True)] if status in (READY, RUNNING, WAITING) else []
        found += [Button("Resume", url("resume"), is_form=True)] if status == PAUSED else []
        found += [Button("Retry…", url("retry"), is_form=False, kind="primary")] if status == FAILED else []
        found += [Button("Roll back…", url("rollback"), is_form=False), Button("Fork…", url("fork"), is_form=False)]
        found += [Button("Cancel…", url("cancel"), is_form=False, kind="danger")] if status not in TERMINAL else []
        return found


def mark_of(commit_id: bytes) -> str:
    """The mark of a run: it changes with every commit, also with those to its inbox."""
    return commit_id.hex()


def is_visible(c: Context, run_id: str) -> bool:
    """Whether there is such a run, and the user may see it."""
    try:
        c.visible(run_id)
    except HoldfastError:
        return False
    return True
