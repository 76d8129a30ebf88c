"""The user's app, from `module:name` or `path/file.py:name`: an App, or a function that makes one for a store's URL."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.cli.settings import Setting
from holdfast.errors import HoldfastError, InvalidInput

if TYPE_CHECKING:
    from holdfast.runtime.app import App


class AppNotLoaded(InvalidInput):
    """What was named as the app cannot be loaded, or is none."""


def load_object(setting: Setting) -> Any:
    """What the setting names, imported from the current directory or from where `pyproject.toml` lies."""
    named, colon, name = setting.value.rpartition(":")
    if not colon or not named or not name:
        raise AppNotLoaded(f"{setting.value!r} ({setting.source}) names no app; write module:name or file.py:name")
    folder = str(setting.folder or Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = _module(named, folder, setting)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise AppNotLoaded(f"{named} has no {name!r} ({setting.source}); the app must be there when it is imported")
        found = getattr(found, part)
    return found


def is_app(found: Any) -> bool:
    """Whether this is an App rather than a function that makes one."""
    from holdfast.runtime.app import App

    return isinstance(found, App)


def made_app(make: Any, url: str, setting: Setting) -> App:
    """The app that a function makes for a store."""
    if not callable(make):
        raise AppNotLoaded(
            f"{setting.value} is neither a holdfast.App nor a function that is given a store's URL and returns one"
        )
    try:
        app = make(url)
    except HoldfastError:
        raise
    except Exception as error:
        raise AppNotLoaded(f"{setting.value}({url!r}) raised {type(error).__name__}: {error}") from error
    if not is_app(app):
        raise AppNotLoaded(f"{setting.value}({url!r}) returned {type(app).__name__}, not a holdfast.App")
    return app  # type: ignore[no-any-return]


def langgraph_adapter() -> Any:
    """The LangGraph adapter; InvalidInput if LangGraph is not installed."""
    try:
        from holdfast.adapters import langgraph
    except ImportError as error:
        if error.name is None or not error.name.startswith("lang"):
            raise
        raise InvalidInput('LangGraph is not installed; pip install "holdfast[langgraph]"') from error
    return langgraph


def _module(named: str, folder: str, setting: Setting) -> ModuleType:
    try:
        if named.endswith(".py") or os.sep in named:
            return _from_file(os.path.join(folder, named))
        return importlib.import_module(named)
    except HoldfastError:
        raise
    except (Exception, SystemExit) as error:  # the user's module ran; whatever it raised, the setting is what is wrong
        if isinstance(error, ModuleNotFoundError) and error.name == named.partition(".")[0]:
            raise AppNotLoaded(f"there is no module {named!r} ({setting.source}) in {folder}") from error
        raise AppNotLoaded(f"importing {named} ({setting.source}) raised {type(error).__name__}: {error}") from error


def _from_file(path: str) -> ModuleType:
    path = os.path.abspath(path)
    if not os.path.isfile(path):
        raise AppNotLoaded(f"there is no file {os.path.relpath(path)}")
    name = Path(path).stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == path:
        return known
    if known is not None or name in sys.stdlib_module_names:  # a file may be called queue.py, and must not become it
        name = f"holdfast_app_{name}"
    beside = str(Path(path).parent)
    if beside not in sys.path:
        sys.path.insert(0, beside)  # as when Python runs the file itself
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppNotLoaded(f"{os.path.relpath(path)} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
