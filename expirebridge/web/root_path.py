"""Serves the dashboard under a path, behind a proxy that keeps the path or takes it off."""

import re

from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from expirebridge.errors import InvalidSetting


class RootPath:
    """Passes requests on with the path as a mounted application gets it."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            path = scope["path"]
            if not path.startswith(f"{self._root}/"):
                path = self._root + path
            scope = {**scope, "path": path, "root_path": self._root}
        await self._app(scope, receive, send)


def under(app: Starlette, root: str) -> ASGIApp:
    """Serve an application under a path; an empty one, or /, changes nothing.

    Raises InvalidSetting for what is no path, and for one with which a request could be meant in
    two ways.
    """
    root = root.rstrip("/")
    if not root:
        return app
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", root):
        raise InvalidSetting(f"root-path={root!r}: it must begin with /, such as /tasks")
    pages = [
        route.path + ("/" if isinstance(route, Mount) else "")
        for route in app.routes
        if isinstance(route, Route | Mount)
    ]
    if any(page.startswith(f"{root}/") for page in pages):
        raise InvalidSetting(f"root-path={root!r}: pages of the dashboard begin so; choose another")
    return RootPath(app, root)
