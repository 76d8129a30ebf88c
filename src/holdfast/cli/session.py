"""What a command works with: the store and where its URL came from, the user's app, and where output goes.

Nothing is opened before it is asked for. A command that only looks asks for `store()`, which never makes a store; one
that may be the first to write asks for `store(create=True)`.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.cli import places
from holdfast.cli.output import Output
from holdfast.cli.settings import DEFAULT, Setting, app_setting, store_setting
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.store.url import parse_store_url

if TYPE_CHECKING:
    from holdfast.runtime.app import App
    from holdfast.verbs.store import Store


class Where(NamedTuple):
    """The store a command uses."""

    url: str
    source: str

    @property
    def shown(self) -> str:
        """Its URL without a password."""
        return places.shown(self.url)


class Session:
    """One command's store, app and output."""

    def __init__(self) -> None:
        self.store_given: str | None = None
        self.app_given: str | None = None
        self.json = False
        self.color: bool | None = None
        self.how_to_go_on = ""
        """What to say after Ctrl-C."""
        self._where: Where | None = None
        self._store: Store | None = None
        self._app: App | None = None
        self._owned: list[Any] = []

    @functools.cached_property
    def out(self) -> Output:
        """Where output goes."""
        return Output(as_json=self.json, color=self.color)

    def say(self, text: str = "") -> None:
        """A line for people: on standard output, or with --json on standard error."""
        self.out.say(text)

    # --- the store ---------------------------------------------------------------------------------------------------

    def where(self) -> Where | None:
        """The store this command uses or would use; None if the settings cannot be read."""
        try:
            return self._where or Where(*store_setting(self.store_given)[:2])
        except HoldfastError:
            return None

    def _settled(self) -> Where:
        """The store that the settings name; InvalidInput if that is not the URL of one."""
        setting = store_setting(self.store_given)
        parse_store_url(setting.value)
        return Where(setting.value, setting.source)

    def location(self) -> Where:
        """The store's URL and where it came from, for what opens it by itself."""
        setting = self.app_named()
        if self._where is None and setting is not None and self._settled().source == DEFAULT:
            from holdfast.cli.loading import is_app, load_object

            found = load_object(setting)  # an App has a store of its own; a function makes one for what is settled
            if is_app(found):
                self._where = Where(found.store.url, f"the app {setting.value}")
        self._where = self._where or self._settled()
        return self._where

    def store(self, *, create: bool = False) -> Store:
        """The store, opened. NoStore if it is not there, unless it may be created.

        The user's app is only loaded for it if nothing else says which store to use.
        """
        if self._store is None:
            settled = self._settled()
            if settled.source == DEFAULT and self.app_named() is not None:
                self._store = self.app(create=create).store
            else:
                self._where = settled
                self._store = self._opened(settled.url, create=create)
        return self._store

    def _opened(self, url: str, *, create: bool) -> Store:
        from holdfast.opening import open as open_store

        if not create:
            places.require(url)
        store = open_store(url)
        self._owned.append(store)
        return store

    # --- the app -----------------------------------------------------------------------------------------------------

    def app_named(self) -> Setting | None:
        """Where the user's app is, if one is named."""
        return app_setting(self.app_given)

    def app(self, *, create: bool = False) -> App:
        """The user's app; without one, an app on the store that knows no workflows."""
        if self._app is None:
            import logging

            logging.getLogger("holdfast.run").addHandler(logging.NullHandler())  # the command itself reports failures
            setting = self.app_named()
            self._app = self._bare(create=create) if setting is None else self._loaded(setting, create=create)
        return self._app

    def _bare(self, *, create: bool) -> App:
        from holdfast.runtime.app import App

        app = App(self.store(create=create))
        self._owned.append(app)
        return app

    def _loaded(self, setting: Setting, *, create: bool) -> App:
        from holdfast.cli.loading import is_app, load_object, made_app

        found = load_object(setting)
        wanted = self._settled()
        if is_app(found):
            url: str = found.store.url
            if wanted.source != DEFAULT and not places.same(wanted.url, url):
                raise InvalidInput(
                    f"the app {setting.value} uses the store {places.shown(url)}, but {wanted.source} says "
                    f"{wanted.shown}; leave that out, or name a function that makes the app for a store"
                )
            self._where = Where(url, f"the app {setting.value}")
            app: App = found
            self._owned.append(app)  # the process ends with this command
        else:
            self._where = wanted
            if not create:
                places.require(wanted.url)
            app = made_app(found, wanted.url, setting)
            self._owned.append(app)
        self._store = app.store
        return app

    def names(self) -> App | None:
        """The user's app, for what it knows by name: no store is opened for one that a function makes."""
        from holdfast.cli.loading import is_app, load_object, made_app

        setting = self.app_named()
        if setting is None:
            return None
        found = load_object(setting)
        if is_app(found):
            return found  # type: ignore[no-any-return]
        app = made_app(found, "memory:", setting)
        self._owned.append(app)
        return app

    def knows(self, workflow: str) -> bool:
        """Whether the app of this command can move a run of this workflow on."""
        return self.app().knows(workflow)

    def close(self) -> None:
        """Close what this command opened."""
        while self._owned:
            with contextlib.suppress(HoldfastError):  # what the command did is done and told
                self._owned.pop().close()
