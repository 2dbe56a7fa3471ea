"""Assembles the dashboard: its routes, its guard, and what they share."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import redis.asyncio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from expirebridge.bridge import AsyncBridge, Operations
from expirebridge.connection import clients
from expirebridge.errors import (
    GroupIncomplete,
    InvalidTask,
    LedgerError,
    ServerError,
)
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.store.partitions import AsyncPartitions
from expirebridge.task.task import Task
from expirebridge.web.actions import ActionPages
from expirebridge.web.capability_pages import capability_pages
from expirebridge.web.context import Entry, PageContext, Redact
from expirebridge.web.edit import EditPages
from expirebridge.web.guard import Credentials, Guard
from expirebridge.web.live import LivePages
from expirebridge.web.overview import Overview
from expirebridge.web.pages import TaskPages

STATIC = Path(__file__).parent / "static"
OWN_ENTRIES = (
    Entry(10, "overview", "/", "Overview"),
    Entry(20, "tasks", "/tasks", "Tasks"),
    Entry(70, "actions", "/actions", "Actions"),
)


def app(
    url: str | None = None,
    *,
    client: redis.asyncio.Redis | None = None,
    prefix: str | None = None,
    ledger: str | None = None,
    ledger_name: str | None = None,
    actions: bool = False,
    credentials: Credentials | None = None,
    redact: Redact | None = None,
    loopback_only: bool = False,
) -> Starlette:
    """Return the dashboard as an ASGI application, to run or to mount anywhere.

    `url`, `client` and `prefix` are those of `AsyncBridge`. `ledger` is the URL of a ledger's
    database, and `ledger_name` its name; without them EXPIREBRIDGE_LEDGER and
    EXPIREBRIDGE_LEDGER_NAME are. If there is one, the dashboard has a page of it. Without `actions`
    it is read only.
    `credentials` say who may sign in; without them everybody who can reach it may use it, so leave
    them out only if something else checks users. `redact` receives each task before it is shown,
    and returns it without what must not be shown. With `loopback_only` it answers only requests to
    this machine's loopback names.
    """
    settings = Settings.read(url=url, prefix=prefix, ledger=ledger, ledger_name=ledger_name)
    own = client is None
    client = client or clients.async_producer_client(settings.url, settings.prefix)
    context = PageContext(
        bridge=AsyncBridge(url, client=client, prefix=prefix),
        operations=Operations(replace(settings, keys=None), Hooks()),
        store=AsyncPartitions(client, prefix=settings.prefix),
        settings=settings,
        actions=actions,
        redact=redact or _as_it_is,
        redacts=redact is not None,
        entries=_entries(settings),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        if own:
            await context.store.aclose()

    return Starlette(
        routes=_routes(context),
        middleware=[Middleware(Guard, credentials=credentials, loopback_only=loopback_only)],
        exception_handlers={
            InvalidTask: context.refused,
            GroupIncomplete: context.refused,
            ServerError: context.troubled,
            LedgerError: context.troubled_by_ledger,
            404: context.nothing_there,
        },
        lifespan=lifespan,
    )


def _entries(settings: Settings) -> list[Entry]:
    given = [pages.entry(settings) for pages in capability_pages()]
    return sorted([*OWN_ENTRIES, *(entry for entry in given if entry is not None)])


def _routes(context: PageContext) -> list[BaseRoute]:
    overview = Overview(context)
    pages, live = TaskPages(context, overview), LivePages(context, overview)
    acting, editing = ActionPages(context), EditPages(context)
    return [
        Route("/", pages.overview, name="overview"),
        Route("/live", live.overview),
        Route("/tasks", pages.tasks, name="tasks"),
        Route("/find", pages.find),
        Route("/task", pages.task, name="task"),
        Route("/task", acting.act, methods=["POST"]),
        Route("/task/live", live.task),
        Route("/task/arguments", pages.arguments),
        Route("/task/edit", editing.form),
        Route("/task/edit", editing.submit, methods=["POST"]),
        Route("/bulk", acting.preview),
        Route("/bulk", acting.act_on_all, methods=["POST"]),
        Route("/actions", acting.log, name="actions"),
        *(route for one in capability_pages() for route in one.routes(context, overview)),
        Mount("/static", _Assets(directory=STATIC), name="static"),
    ]


def without_arguments(task: Task) -> Task:
    """Return the task without what may be secret: its arguments, result, error, and its signal's
    payload.

    A `redact` for `app`.
    """
    hidden = "(not shown)"
    return replace(
        task, args=(hidden,), kwargs={}, key=b"",
        result=None if task.result is None else hidden,
        error=None if task.error is None else hidden,
        signal=None if task.signal is None else replace(task.signal, payload=hidden),
    )  # fmt: skip


def _as_it_is(task: Task) -> Task:
    return task


class _Assets(StaticFiles):
    """Files that a browser caches, and checks for changes."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Send a file."""
        response: FileResponse | Response = super().file_response(*args, **kwargs)
        response.headers["cache-control"] = "no-cache"
        return response
