"""The page that signals a task."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from expirebridge.errors import InvalidTask
from expirebridge.task import keys, signal_payload
from expirebridge.task.task import UNCLAIMED, Change, Task
from expirebridge.web.actions import READ_ONLY, carry_out, read_form
from expirebridge.web.capability_pages import CapabilityPages, TaskLink
from expirebridge.web.context import PageContext, redirect
from expirebridge.web.overview import Overview

_MAX_FORM = 8 * signal_payload.MAX_PAYLOAD
"""Bytes: a character can take three of them, and there may be spaces."""


class SignalPages:
    """The handlers of this page."""

    def __init__(self, context: PageContext) -> None:
        self._context = context

    async def form(self, request: Request) -> Response:
        """The form for what the signal says."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        id = keys.check_id(request.query_params.get("id", "").strip())
        task = await self._context.bridge.get(id)
        if task is None:
            return await self._context.nothing_there(request)
        if not _can_be_signalled(task):
            raise InvalidTask(f"task {id!r} waits for no signal")
        return self._context.page(request, "signal.html", task=task, now=await self._context.now())

    async def submit(self, request: Request) -> Response:
        """Signal the task, in the name of who has signed in."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request, most=_MAX_FORM)
        id = keys.check_id(form.get("id", "").strip())
        payload = signal_payload.read(form.get("payload", ""))
        work = self._signal(id, payload, by=str(request.state.who))
        [change] = await carry_out(self._context, request, "signal", id, work)
        if change is Change.OF_LEDGER:
            raise InvalidTask(f"task {id!r} is of a ledger: call ledger.signal in a program")
        return redirect(request, "task", id=id, told=change)

    async def _signal(self, id: str, payload: Any, *, by: str) -> Mapping[Change, int]:
        return {await self._context.bridge.signal(id, payload, by=by): 1}


def _can_be_signalled(task: Task) -> bool:
    return task.on_signal is not None and task.state in UNCLAIMED


def _links(task: Task) -> Sequence[TaskLink]:
    return [TaskLink("Signal", "/task/signal")] if _can_be_signalled(task) else []


def _routes(context: PageContext, _: Overview) -> list[BaseRoute]:
    pages = SignalPages(context)
    return [
        Route("/task/signal", pages.form),
        Route("/task/signal", pages.submit, methods=["POST"]),
    ]


PAGES = CapabilityPages(routes=_routes, task_links=_links)
