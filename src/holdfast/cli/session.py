"""The session of one command: its store, the user's app and its output.

Everything is opened on first use. `store()` never creates a store; a command that may be the first to write uses
`store(create=True)`. The app is named as `module:name` or `path/file.py:name`: an App, or a function that makes one for
the URL of a store.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli import settings
from holdfast.cli.output import Output
from holdfast.cli.settings import DEFAULT, Setting, app_setting, store_setting
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.open_store import parse_store_url

if TYPE_CHECKING:
    from types import ModuleType
    from typing import TypeGuard

    from holdfast.operations.store import Store
    from holdfast.operations.store_reads import StoreReads
    from holdfast.runtime.app import App


class Where(NamedTuple):
    """The store a command uses."""

    url: str
    source: str

    @property
    def shown(self) -> str:
        """Its URL without a password."""
        return settings.shown(self.url)


class Session:
    """One command's store, app and output."""

    def __init__(self) -> None:
        self.store_given: str | None = None
        self.app_given: str | None = None
        self.json = False
        self.color: bool | None = None
        self.how_to_continue = ""
        """What to print after Ctrl-C."""
        self._where: Where | None = None
        self._store: Store | None = None
        self._app: App | None = None
        self._reads: StoreReads | None = None
        self._owned: list[App | StoreReads] = []

    @functools.cached_property
    def out(self) -> Output:
        """The output of the command."""
        return Output(as_json=self.json, color=self.color)

    def say(self, text: str = "") -> None:
        """Write a line of text: to standard output, or with --json to standard error."""
        self.out.say(text)

    # --- the store ---------------------------------------------------------------------------------------------------

    def where(self) -> Where | None:
        """Return the store that this command uses or would use; None if the settings cannot be read."""
        try:
            return self._where or Where(*store_setting(self.store_given)[:2])
        except HoldfastError:
            return None

    def _configured(self) -> Where:
        """Return the store that the settings name; InvalidInput if its URL is invalid."""
        setting = store_setting(self.store_given)
        parse_store_url(setting.value)
        return Where(setting.value, setting.source)

    def location(self) -> Where:
        """Return the URL of the store and its source, without opening the store."""
        setting = self.app_named()
        if self._where is None and setting is not None and self._configured().source == DEFAULT:
            found = load_object(setting)  # an App has its own store; a function makes one for the configured store
            if is_app(found):
                self._where = Where(found.store.url, f"the app {setting.value}")
        self._where = self._where or self._configured()
        return self._where

    def store(self, *, create: bool = False) -> Store:
        """Open the store. NoStore if it does not exist, unless it may be created.

        The user's app is loaded only if no setting names the store.
        """
        if self._store is None:
            configured = self._configured()
            if configured.source == DEFAULT and self.app_named() is not None:
                self._store = self.app(create=create).store
            else:
                self._where = configured
                self._store = self._open(configured.url, create=create)
        return self._store

    def reads(self) -> StoreReads:
        """Open the store as `store` does, but only to read it: what writes is not loaded."""
        configured = self._configured()
        if self._store is not None or (configured.source == DEFAULT and self.app_named() is not None):
            return self.store()
        if self._reads is None:
            from holdfast.open_store import open_reads

            self._where = configured
            settings.require(configured.url)
            self._reads = open_reads(configured.url)
            self._owned.append(self._reads)
        return self._reads

    def _open(self, url: str, *, create: bool) -> Store:
        from holdfast.open_store import open as open_store

        if not create:
            settings.require(url)
        store = open_store(url)
        self._owned.append(store)
        return store

    # --- the app -----------------------------------------------------------------------------------------------------

    def app_named(self) -> Setting | None:
        """Return the setting of the user's app, if there is one."""
        return app_setting(self.app_given)

    def app(self, *, create: bool = False) -> App:
        """Return the user's app; without one, an app without workflows on the store."""
        if self._app is None:
            import logging

            logging.getLogger("holdfast.run").addHandler(logging.NullHandler())  # the command itself reports failures
            setting = self.app_named()
            self._app = self._empty_app(create=create) if setting is None else self._load_app(setting, create=create)
        return self._app

    def _empty_app(self, *, create: bool) -> App:
        from holdfast.runtime.app import App

        app = App(self.store(create=create))
        self._owned.append(app)
        return app

    def _load_app(self, setting: Setting, *, create: bool) -> App:
        found = load_object(setting)
        wanted = self._configured()
        if is_app(found):
            url = found.store.url
            if wanted.source != DEFAULT and not settings.same(wanted.url, url):
                raise InvalidInput(
                    f"the app {setting.value} uses the store {settings.shown(url)}, but {wanted.source} names "
                    f"{wanted.shown}; leave that out, or name a function that makes the app for a store"
                )
            self._where = Where(url, f"the app {setting.value}")
            app = found
        else:
            self._where = wanted
            if not create:
                settings.require(wanted.url)
            app = make_app(found, wanted.url, setting)
        self._owned.append(app)  # also the app of a module: the process ends with this command
        self._store = app.store
        return app

    def names(self) -> App | None:
        """Return the user's app for the names registered in it; an app that a function makes gets a store in memory."""
        setting = self.app_named()
        if setting is None:
            return None
        found = load_object(setting)
        if is_app(found):
            return found
        app = make_app(found, "memory:", setting)
        self._owned.append(app)
        return app

    def knows(self, workflow: str) -> bool:
        """Return whether the app of this command has this workflow."""
        return self.app().knows(workflow)

    def close(self) -> None:
        """Close what this command opened."""
        while self._owned:
            with contextlib.suppress(HoldfastError):  # the command has finished and reported its result
                self._owned.pop().close()


class AppNotLoaded(InvalidInput):
    """The object named as the app cannot be loaded, or is not an app."""


def load_object(setting: Setting) -> object:
    """Import what the setting names, from the current directory or from the directory of `pyproject.toml`."""
    named, colon, name = setting.value.rpartition(":")
    if not colon or not named or not name:
        raise AppNotLoaded(
            f"{setting.value!r} ({setting.source}) does not name an app; write module:name or file.py:name"
        )
    folder = setting.folder or os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _import_module(named, folder, setting)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise AppNotLoaded(
                f"{named} has no {name!r} ({setting.source}); the app must be defined when the module is imported"
            )
        found = getattr(found, part)
    return found


def is_app(found: object) -> TypeGuard[App]:
    """Return whether this is an App rather than a function that makes one."""
    from holdfast.runtime.app import App

    return isinstance(found, App)


def make_app(make: object, url: str, setting: Setting) -> App:
    """Call the function that makes the app for a store."""
    if not callable(make):
        raise AppNotLoaded(
            f"{setting.value} is neither a holdfast.App nor a function that takes the URL of a store and returns one"
        )
    try:
        app = make(url)
    except HoldfastError:
        raise
    except Exception as error:
        raise AppNotLoaded(f"{setting.value}({url!r}) raised {type(error).__name__}: {error}") from error
    if not is_app(app):
        raise AppNotLoaded(f"{setting.value}({url!r}) returned {type(app).__name__}, not a holdfast.App")
    return app


def langgraph_adapter() -> ModuleType:
    """Import the LangGraph adapter; InvalidInput if LangGraph is not installed."""
    try:
        from holdfast.adapters import langgraph
    except ImportError as error:
        if error.name is None or not error.name.startswith("lang"):
            raise
        raise InvalidInput('LangGraph is not installed; pip install "holdfast[langgraph]"') from error
    return langgraph


def _import_module(named: str, folder: str, setting: Setting) -> ModuleType:
    from importlib import import_module

    try:
        if named.endswith(".py") or os.sep in named:
            return _import_file(os.path.join(folder, named))
        return import_module(named)
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and error.name == named.partition(".")[0]:
            raise AppNotLoaded(f"module {named!r} ({setting.source}) was not found in {folder}") from error
        raise AppNotLoaded(f"importing {named} ({setting.source}) raised {type(error).__name__}: {error}") from error


def _import_file(path: str) -> ModuleType:
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise AppNotLoaded(f"{os.path.relpath(path)} does not exist")
    name = os.path.splitext(os.path.basename(path))[0]
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    if known is not None or name in sys.stdlib_module_names:  # a file named queue.py must not replace the module queue
        name = f"holdfast_app_{name}"
    beside = os.path.dirname(path)
    if beside not in sys.path:
        sys.path.insert(0, beside)  # as when Python runs the file itself
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppNotLoaded(f"{os.path.relpath(path)} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
