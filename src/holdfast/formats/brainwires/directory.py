"""Brainwires' store of task checkpoints as files, with marks that are atomic between processes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from holdfast.errors import (
    Conflict,
    DamagedFile,
    HoldfastError,
    NameTaken,
    StorageBusy,
    StorageError,
    StorageFailed,
)
from holdfast.formats.aio import AsyncVerbs, awaiting
from holdfast.formats.brainwires.names import deno_name, has_older_names, is_older_name, rust_name
from holdfast.formats.brainwires.results import Results
from holdfast.formats.brainwires.shape import WorkflowCheckpoint, checked_effect, is_completed, marked, to_write
from holdfast.formats.folder import Folder
from holdfast.formats.lossless import write_json
from holdfast.formats.names import fitting
from holdfast.formats.shapes import read_checked
from holdfast.ids import check_id
from holdfast.store.directory.files import Files, Identity

ENDING: Final = ".json"


ATTEMPTS_MAX: Final = 100
"""So often a mark is tried while another program changes the file."""


class _Seen(NamedTuple):
    """What was there at one moment."""

    name: str
    content: dict[str, Any] | None
    stamps: dict[str, Identity]

    @property
    def identity(self) -> Identity | None:
        return self.stamps.get(self.name)


class Directory:
    """A directory of Brainwires' task checkpoints (`~/.brainwires/workflow`), with its verbs.

    Ids that the original would put into the same file are told apart by the id inside: the second gets NameTaken. Files
    named by the twin for Deno are found as well, and those named by programs with an older version of Unicode.

    Example:
        tasks = brainwires.Directory("workflow")
        tasks.mark_step_complete("task-a", "use-1", brainwires.side_effect("use-1", "write_file", "a.txt"))
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(path, timeout_s=timeout_s, files=files)
        self._results = Results(self._folder)
        self._unsure: dict[tuple[str, str], dict[str, Any]] = {}
        """Marks made here of which the caller got an error, because they could not be made durable."""

    @staticmethod
    def default_path() -> Path:
        """Where the original keeps its files: `.brainwires/workflow` in the home directory.

        Example:
            brainwires.Directory.default_path()
        """
        return Path.home() / ".brainwires" / "workflow"

    @classmethod
    def with_default_path(cls) -> Self:
        """The directory there.

        Example:
            brainwires.Directory.with_default_path()
        """
        return cls(cls.default_path())

    def save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put a task's checkpoint in place of the one before, whole and durably.

        Example:
            tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
        """
        content = to_write(checkpoint)
        task_id, data = content["task_id"], write_json(content)
        self._names(task_id)
        with self._folder.held():
            results: dict[str, Any] = {}
            try:
                seen = self._look(task_id)
                name = self._renamed(task_id, seen.name)
                if seen.content is not None and self._results.has_any(task_id):
                    results = self._results.all_of(seen.content, seen.identity)
            except DamagedFile:  # torn by the original, and replaced now
                name = self._names(task_id)[0]

            def keep_results(written: Identity) -> bool:
                for tool_use_id, result in results.items():
                    if tool_use_id in content["completed_tool_ids"]:
                        self._results.add(content, written, tool_use_id, result)
                return True

            self._folder.put(data, name, confirm=keep_results)

    def load_checkpoint(self, task_id: str) -> dict[str, Any] | None:
        """A task's checkpoint, or None if there is none.

        Example:
            tasks.load_checkpoint("task-a")
        """
        return self._found(task_id, self._names(task_id))[1]

    def mark_step_complete(
        self, task_id: str, tool_use_id: str, effect: dict[str, Any], *, result: object = None
    ) -> bool:
        """Record that a tool call was done. True the first time, False ever after, also between processes.

        The file is looked at again right before it is replaced, and if the original has changed it meanwhile, the mark
        is added to what stands there then. After an error, to repeat the call here is still the first time, if the mark
        is this one's.

        `result` is kept beside the checkpoint, where the original does not look, so that a call that is not repeated
        can be answered; it must be JSON.

        Example:
            effect = brainwires.side_effect("use-2", "send_mail", reversible=False)
            tasks.mark_step_complete("task-a", "use-2", effect, result={"sent": True})
        """
        record = checked_effect(tool_use_id, effect)
        self._names(task_id)
        write_json(result)
        with self._folder.held():
            for _ in range(ATTEMPTS_MAX):
                seen = self._look(task_id)
                after = marked(seen.content, task_id, record)
                if after is None:
                    self._folder.settle()
                    mine = self._unsure.pop((task_id, tool_use_id), None)
                    return mine is not None and seen.content is not None and mine in seen.content["side_effects_log"]
                if self._put_marked(seen, after, record, result):
                    return True
        raise StorageBusy(
            f"{self._folder.at(seen.name)}: another program changed it {ATTEMPTS_MAX} times while "
            f"{tool_use_id!r} was to be marked; nothing was marked, try again"
        )

    def _put_marked(self, seen: _Seen, after: dict[str, Any], record: dict[str, Any], result: object) -> bool:
        """Put the checkpoint with the mark in place, unless the file is not as it was seen any more."""
        task_id, tool_use_id, data = after["task_id"], record["tool_use_id"], write_json(after)
        name = self._renamed(task_id, seen.name)
        if name != seen.name:
            return False
        if seen.content is None:
            self._results.drop(task_id)  # of a task of this id that was deleted, if a crash has left any

        def confirm(written: Identity) -> bool:
            if result is not None or self._results.has_any(task_id):  # an older one must not be taken for this one's
                self._results.add(after, written, tool_use_id, result)
            return self._stamps(self._names(task_id)) == seen.stamps

        try:
            return self._folder.put(data, name, confirm=confirm)
        except StorageError:
            with contextlib.suppress(HoldfastError):
                if self._folder.read(name) == data:
                    self._unsure[task_id, tool_use_id] = record
            raise

    def result(self, task_id: str, tool_use_id: str) -> Any:
        """What a marked tool call gave; None if it was marked without a result, or by the original, or not at all.

        A task that the original has deleted and made again has no results of before.

        Example:
            tasks.result("task-a", "use-2")
        """
        seen = self._look(task_id)
        if not is_completed(seen.content, tool_use_id) or seen.content is None:
            return None
        return self._results.all_of(seen.content, seen.identity).get(tool_use_id)

    def delete_checkpoint(self, task_id: str) -> None:
        """Remove a task's checkpoint. One that is not there is no mistake; another task's file is left alone.

        Example:
            tasks.delete_checkpoint("task-a")
        """
        names = self._names(task_id)
        if all(self._folder.identity(name) is None for name in names):
            self._folder.settle()
            return
        with self._folder.held():
            name, found = names[0], None
            try:
                name, found = self._found(task_id, names)
            except NameTaken:
                return
            except DamagedFile:
                if not self._is_torn(name):
                    raise
                found = {}  # whatever it was, it goes
            if found is not None:
                self._folder.remove(name)
                self._results.drop(task_id)

    @property
    def aio(self) -> AsyncDirectory:
        """The same verbs, to await, as those of the original are."""
        return AsyncDirectory(self)

    def close(self) -> None:
        """Give back the lock's file. Closing twice is no mistake."""
        self._folder.close()

    def _is_torn(self, name: str) -> bool:
        try:
            read_checked(self._folder.read(name) or b"{}", WorkflowCheckpoint, name)
        except DamagedFile:
            return self._folder.identity(name) is not None
        return False

    def _names(self, task_id: str) -> list[str]:
        """The names a task's file may have, the one it gets first."""
        check_id("task_id", task_id)
        stems = dict.fromkeys((rust_name(task_id), deno_name(task_id)))
        names = [fitting("task_id", task_id, stem + ENDING) for stem in stems]
        if has_older_names(task_id):
            found = (name for name in self._folder.names() if name.endswith(ENDING))
            names += [name for name in found if is_older_name(name.removesuffix(ENDING), task_id)]
        return names

    def _renamed(self, task_id: str, name: str) -> str:
        """The name to write to. A file with an older name gets the one the original looks under, if it is free."""
        today = rust_name(task_id) + ENDING
        if not is_older_name(name.removesuffix(ENDING), task_id) or self._folder.identity(today) is not None:
            return name
        self._folder.rename((name,), (today,))
        return today

    def _stamps(self, names: list[str]) -> dict[str, Identity]:
        """Which files have these names; the one that is written is looked at last."""
        found: dict[str, Identity] = {}
        for name in reversed(names):
            with contextlib.suppress(StorageFailed):  # what cannot be looked at cannot be read either
                identity = self._folder.identity(name)
                if identity is not None:
                    found[name] = identity
        return found

    def _look(self, task_id: str) -> _Seen:
        """What is there now, at one moment."""
        while True:
            names = self._names(task_id)
            stamps = self._stamps(names)
            name, content = self._found(task_id, names)
            if self._stamps(names) == stamps:
                return _Seen(name, content, stamps)

    def _found(self, task_id: str, names: list[str]) -> tuple[str, dict[str, Any] | None]:
        """The name of the task's file and what is in it; the name a new one gets if there is none."""
        found: list[tuple[str, dict[str, Any]]] = []
        trouble: NameTaken | DamagedFile | None = None
        for name in names:
            data, place = self._folder.read(name), self._folder.at(name)
            if data is None:
                continue
            try:
                content = read_checked(data, WorkflowCheckpoint, place)
            except DamagedFile as damage:
                trouble = trouble or damage
                continue
            if content["task_id"] == task_id:
                found.append((name, content))
            elif name == names[0]:
                trouble = NameTaken(place, task_id, content["task_id"])
        if len(found) > 1:
            both = " and ".join(self._folder.at(name) for name, _ in found)
            raise Conflict(
                f"task {task_id!r} has two checkpoints, {both}, of the two programs that name files differently; "
                "put what both have done into one of them and move the other away"
            )
        if found:
            return found[0]
        if trouble is not None:
            raise trouble
        return names[0], None


class AsyncDirectory(AsyncVerbs[Directory]):
    """`Directory.aio`: the directory's verbs, to await.

    Example:
        import asyncio

        asyncio.run(tasks.aio.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1")))
    """

    save_checkpoint = awaiting(Directory.save_checkpoint)
    load_checkpoint = awaiting(Directory.load_checkpoint)
    mark_step_complete = awaiting(Directory.mark_step_complete)
    result = awaiting(Directory.result)
    delete_checkpoint = awaiting(Directory.delete_checkpoint)
    close = awaiting(Directory.close)
