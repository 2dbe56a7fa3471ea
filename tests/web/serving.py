"""Dashboards for tests: asked in this process, or run in a thread for a browser to look at."""

import contextlib
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

import httpx
import pytest
import uvicorn
from playwright.sync_api import Page
from starlette.types import ASGIApp

from expirebridge.web.http_connection import Connection
from tests.kit.patience import PATIENCE

Asking = Callable[..., contextlib.AbstractAsyncContextManager[httpx.AsyncClient]]
"""Opens a client of a dashboard that is made with these options."""
OWN = "http://127.0.0.1:8321"
"""Where that client finds it."""

CHROMIUM = shutil.which("chromium")
IN_CHROMIUM = [
    pytest.mark.rest,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]
"""The marks of modules whose tests use a browser."""
# A container's root has no sandbox; only our own pages are opened.
OPTIONS = ["--no-sandbox", "--disable-dev-shm-usage"]
PATIENCE_MS = PATIENCE * 1000


class Open(Protocol):
    """Opens a page of the dashboard."""

    def __call__(
        self,
        path: str = "/",
        *,
        width: int = 1600,
        theme: str = "light",
        at: str = "",
        zone: str = "UTC",
    ) -> Page: ...


def words(html: str) -> str:
    """The text of a page, without its elements."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


@contextlib.contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The address of an application that runs in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            app, log_level="critical", timeout_graceful_shutdown=0, ws="none", http=Connection
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the dashboard's server does not end"
