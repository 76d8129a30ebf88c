"""Brainwires' store of task checkpoints as files.

Marks are atomic between processes of this library, and a change by the original is detected before a file is replaced.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from holdfast.errors import Conflict, DamagedFile, HoldfastError, NameTaken, StorageBusy, StorageError, StorageFailed
from holdfast.files.os_files import Files, Identity
from holdfast.formats.brainwires import task_records
from holdfast.formats.folder import AsyncOperations, Folder, check_name_length, run_in_thread
from holdfast.formats.schema import JsonObject, read_object, write_json
from holdfast.ids import check_id

ENDING: Final = ".json"
ATTEMPTS_MAX: Final = 100
"""How often a mark is tried while another program changes the file."""


class _Snapshot(NamedTuple):
    """The file of a task at one moment."""

    name: str
    content: JsonObject | None
    stamps: dict[str, Identity]

    @property
    def identity(self) -> Identity | None:
        return self.stamps.get(self.name)


class Directory:
    """A directory of Brainwires' task checkpoints (`~/.brainwires/workflow`), with its operations.

    Ids for which the original would use the same file are distinguished by the id inside: the second gets NameTaken.
    Files named by the Deno implementation are found as well, and those of programs with an older version of Unicode.

    Example:
        tasks = brainwires.Directory("workflow")
        tasks.mark_step_complete("task-a", "use-1", brainwires.side_effect("use-1", "write_file", "a.txt"))
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout_s: float = 20.0, files: Files | None = None) -> None:
        self._folder = Folder(path, timeout_s=timeout_s, files=files)
        self._results = task_records.Results(self._folder)
        self._unsure: dict[tuple[str, str], JsonObject] = {}
        """Marks of this object that were written but could not be made durable, so the caller got an error."""

    @staticmethod
    def default_path() -> Path:
        """Return the directory in which the original keeps its files: `.brainwires/workflow` in the home directory.

        Example:
            brainwires.Directory.default_path()
        """
        return Path.home() / ".brainwires" / "workflow"

    @classmethod
    def with_default_path(cls) -> Self:
        """Open the directory at the default path.

        Example:
            brainwires.Directory.with_default_path()
        """
        return cls(cls.default_path())

    def save_checkpoint(self, checkpoint: JsonObject) -> None:
        """Replace a task's checkpoint atomically and durably.

        Example:
            tasks.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1"))
        """
        content = task_records.check_checkpoint(checkpoint)
        task_id, data = content["task_id"], write_json(content)
        self._names(task_id)
        with self._folder.hold():
            results: JsonObject = {}
            try:
                seen = self._snapshot(task_id)
                name = self._modernize(task_id, seen.name)
                if seen.content is not None and self._results.has_any(task_id):
                    results = self._results.all_of(seen.content, seen.identity)
            except DamagedFile:  # torn by the original; it is replaced
                name = self._names(task_id)[0]

            def keep_results(written: Identity) -> bool:
                for tool_use_id, result in results.items():
                    if tool_use_id in content["completed_tool_ids"]:
                        self._results.add(content, written, tool_use_id, result)
                return True

            self._results.remove_torn_end(task_id)
            self._folder.put(data, name, confirm=keep_results)

    def load_checkpoint(self, task_id: str) -> JsonObject | None:
        """Return a task's checkpoint, or None if there is none.

        Example:
            tasks.load_checkpoint("task-a")
        """
        return self._find(task_id, self._names(task_id))[1]

    def mark_step_complete(self, task_id: str, tool_use_id: str, effect: JsonObject, *, result: object = None) -> bool:
        """Record that a tool call completed. Return True the first time, then False, also between processes.

        The file is checked again right before it is replaced; if the original has changed it since, the mark is added
        to the new content. After an error, repeating the call on this object returns True if the mark is its own.

        `result` is kept beside the checkpoint in a file that the original does not read, so that `result()` can return
        it instead of repeating the call; it must be JSON.

        Example:
            effect = brainwires.side_effect("use-2", "send_mail", reversible=False)
            tasks.mark_step_complete("task-a", "use-2", effect, result={"sent": True})
        """
        record = task_records.check_effect(tool_use_id, effect)
        self._names(task_id)
        write_json(result)
        with self._folder.hold():
            for _ in range(ATTEMPTS_MAX):
                seen = self._snapshot(task_id)
                after = task_records.with_mark(seen.content, task_id, record)
                if after is None:
                    self._folder.sync_path()
                    mine = self._unsure.pop((task_id, tool_use_id), None)
                    return mine is not None and seen.content is not None and mine in seen.content["side_effects_log"]
                if self._put_marked(seen, after, record, result):
                    return True
        raise StorageBusy(
            f"{self._folder.at(seen.name)}: another program changed the file during all {ATTEMPTS_MAX} attempts to "
            f"mark {tool_use_id!r}; nothing was marked, try again"
        )

    def _put_marked(self, seen: _Snapshot, after: JsonObject, record: JsonObject, result: object) -> bool:
        """Replace the checkpoint with the marked one, unless the file has changed since the snapshot."""
        task_id, tool_use_id, data = after["task_id"], record["tool_use_id"], write_json(after)
        name = self._modernize(task_id, seen.name)
        if name != seen.name:
            return False
        if seen.content is None:
            self._results.drop(task_id)  # a crash may have left those of a deleted task with this id
        self._results.remove_torn_end(task_id)

        def confirm(written: Identity) -> bool:
            if result is not None or self._results.has_any(task_id):  # it supersedes an older result
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
        """Return the result of a marked tool call; None if it has none, if the original marked it, or if it is not
        marked.

        Results of a task are ignored after the original has deleted and recreated it.

        Example:
            tasks.result("task-a", "use-2")
        """
        seen = self._snapshot(task_id)
        if not task_records.is_completed(seen.content, tool_use_id) or seen.content is None:
            return None
        return self._results.all_of(seen.content, seen.identity).get(tool_use_id)

    def delete_checkpoint(self, task_id: str) -> None:
        """Remove a task's checkpoint. A missing one is not an error; another task's file is left alone.

        Example:
            tasks.delete_checkpoint("task-a")
        """
        names = self._names(task_id)
        if all(self._folder.identity(name) is None for name in names):
            self._folder.sync_path()
            return
        with self._folder.hold():
            name, found = names[0], None
            try:
                name, found = self._find(task_id, names)
            except NameTaken:
                return
            except DamagedFile:
                if not self._is_torn(name):
                    raise
                found = {}  # it is removed as well
            if found is not None:
                self._folder.remove(name)
                self._results.drop(task_id)

    @property
    def aio(self) -> AsyncDirectory:
        """The same operations as coroutines, as in the original."""
        return AsyncDirectory(self)

    def close(self) -> None:
        """Close the lock file. Closing twice is allowed."""
        self._folder.close()

    def _is_torn(self, name: str) -> bool:
        try:
            read_object(self._folder.read(name) or b"{}", task_records.WorkflowCheckpoint, name)
        except DamagedFile:
            return self._folder.identity(name) is not None
        return False

    def _names(self, task_id: str) -> list[str]:
        """Return the names that a task's file may have; a new file gets the first."""
        check_id("task_id", task_id)
        stems = dict.fromkeys((task_records.rust_name(task_id), task_records.deno_name(task_id)))
        names = [check_name_length("task_id", task_id, stem + ENDING) for stem in stems]
        if task_records.has_older_names(task_id):
            found = (name for name in self._folder.names() if name.endswith(ENDING))
            names += [name for name in found if task_records.is_older_name(name.removesuffix(ENDING), task_id)]
        return names

    def _modernize(self, task_id: str, name: str) -> str:
        """Return the name to write to. A file with an older name is renamed to the current one, if that is free."""
        today = task_records.rust_name(task_id) + ENDING
        is_older = task_records.is_older_name(name.removesuffix(ENDING), task_id)
        if not is_older or self._folder.identity(today) is not None:
            return name
        self._folder.rename((name,), (today,))
        return today

    def _stamps(self, names: list[str]) -> dict[str, Identity]:
        """Return the identities of the files with these names; the name to write to comes last."""
        found: dict[str, Identity] = {}
        for name in reversed(names):
            with contextlib.suppress(StorageFailed):  # a file without an identity cannot be read either
                identity = self._folder.identity(name)
                if identity is not None:
                    found[name] = identity
        return found

    def _snapshot(self, task_id: str) -> _Snapshot:
        """Return a consistent snapshot of the task's file."""
        while True:
            names = self._names(task_id)
            stamps = self._stamps(names)
            name, content = self._find(task_id, names)
            if self._stamps(names) == stamps:
                return _Snapshot(name, content, stamps)

    def _find(self, task_id: str, names: list[str]) -> tuple[str, JsonObject | None]:
        """Return the name and the content of the task's file; if there is none, the name of a new one."""
        found: list[tuple[str, JsonObject]] = []
        problem: NameTaken | DamagedFile | None = None
        for name in names:
            data, place = self._folder.read(name), self._folder.at(name)
            if data is None:
                continue
            try:
                content = read_object(data, task_records.WorkflowCheckpoint, place)
            except DamagedFile as damage:
                problem = problem or damage
                continue
            if content["task_id"] == task_id:
                found.append((name, content))
            elif name == names[0]:
                problem = NameTaken(place, task_id, content["task_id"])
        if len(found) > 1:
            both = " and ".join(self._folder.at(name) for name, _ in found)
            raise Conflict(
                f"task {task_id!r} has two checkpoints, {both}, of programs that name files differently; "
                "merge them into one of the files and move the other away"
            )
        if found:
            return found[0]
        if problem is not None:
            raise problem
        return names[0], None


class AsyncDirectory(AsyncOperations[Directory]):
    """`Directory.aio`: the directory's operations as coroutines.

    Example:
        import asyncio

        asyncio.run(tasks.aio.save_checkpoint(brainwires.new_checkpoint("task-a", "agent-1")))
    """

    save_checkpoint = run_in_thread(Directory.save_checkpoint)
    load_checkpoint = run_in_thread(Directory.load_checkpoint)
    mark_step_complete = run_in_thread(Directory.mark_step_complete)
    result = run_in_thread(Directory.result)
    delete_checkpoint = run_in_thread(Directory.delete_checkpoint)
    close = run_in_thread(Directory.close)
