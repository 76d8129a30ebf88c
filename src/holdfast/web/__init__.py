"""The web page and the JSON API, as an ASGI application.

`holdfast web` serves it; `asgi` mounts it in an application of yours.
"""

from __future__ import annotations

try:
    from holdfast.web.identity import User
    from holdfast.web.server import asgi
except ImportError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "jinja2", "markupsafe", "anyio"):
        raise
    missing = 'holdfast.web needs starlette and jinja2; pip install "holdfast[web]"'
    raise ImportError(missing, name=error.name) from error

__all__ = ["User", "asgi"]
