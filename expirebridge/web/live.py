"""The streams of events that keep open pages up to date."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from expirebridge.errors import ServerError
from expirebridge.task import keys
from expirebridge.web.context import PageContext
from expirebridge.web.overview import Overview, span_in
from expirebridge.web.pages import task_values

PAUSE = 2.0
"""Seconds between two readings."""
MAX_STREAMS = 200
"""Most open pages that are kept up to date; others must be reloaded by hand."""

_DISTANCES = re.compile(r'(<time data-ms="-?\d+">)[^<]*')
_Parts = Callable[[], Awaitable[dict[str, str]]]


class LivePages:
    """The handlers of these streams."""

    def __init__(self, context: PageContext, overview: Overview) -> None:
        self._context = context
        self._overview = overview
        self._places = asyncio.Semaphore(MAX_STREAMS)

    async def overview(self, request: Request) -> Response:
        """The parts of the overview, whenever they have changed."""

        async def parts() -> dict[str, str]:
            present = await self._overview.present()
            course = await self._overview.course(request.query_params)
            span = span_in(request.query_params)
            return {
                "present": self._context.draw(
                    request, "present.html", present=present, course=course
                ),
                "course": self._context.draw(request, "course.html", course=course, span=span),
            }

        return self._stream(parts)

    async def task(self, request: Request) -> Response:
        """The parts of a task's page that change. What can be done follows from the state."""
        id = keys.check_id(request.query_params.get("id", ""))
        shown = request.query_params.get("state", "")

        async def parts() -> dict[str, str]:
            nonlocal shown
            try:
                found = await self._context.find(id)
                if found is None:
                    return {
                        "why": self._context.draw(request, "why.html", reason=None),
                        "task": self._context.draw(request, "gone.html"),
                    }
                values = await task_values(self._context, found)
            except ServerError:
                return {}  # the page keeps what it shows
            task = found.task
            # The reason is a part of its own: the distances in it change with each reading.
            drawn = {
                "why": self._context.draw(request, "why.html", **values),
                "task": self._context.draw(request, "facts.html", **values),
            }
            if task.state != shown:  # else a question that is open there would be closed
                drawn["acts"] = self._context.draw(request, "acts.html", **values)
                shown = task.state
            return drawn

        return self._stream(parts)

    def _stream(self, parts: _Parts) -> Response:
        return _Stream(_events(parts), self._places)


class _Stream(StreamingResponse):
    """Events for one open page, if a place is free."""

    def __init__(self, events: AsyncIterator[str], places: asyncio.Semaphore) -> None:
        # This keeps a proxy (nginx) from buffering the stream.
        headers = {"x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a place, and keep it while the page is open."""
        if self._places.locked():
            await PlainTextResponse("Too many pages are open.", 503)(scope, receive, send)
            return
        # Nothing is awaited before a free place is taken, so no other page can take it.
        async with self._places:
            await super().__call__(scope, receive, send)


async def _events(parts: _Parts) -> AsyncIterator[str]:
    sent: dict[str, str] = {}
    while True:
        drawn = await parts()
        # Something is sent each time, so that a closed page is noticed.
        yield ": still here\n\n"
        for name, html in drawn.items():
            # The page itself updates how far times are from now.
            compared = _DISTANCES.sub(r"\1", html)
            if sent.get(name) != compared:
                sent[name] = compared
                lines = "".join(f"data: {line}\n" for line in html.splitlines())
                yield f"event: {name}\n{lines}\n"
        await asyncio.sleep(PAUSE)
