"""The web page and the JSON API, as an ASGI application.

`holdfast web` serves it; `asgi` mounts it in an application of yours.
"""

from __future__ import annotations

from holdfast.web.identity import User
from holdfast.web.server import asgi

__all__ = ["User", "asgi"]
