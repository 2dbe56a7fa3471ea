"""The streams of events by which open pages stay right."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from expirebridge import wire
from expirebridge.errors import ServerError
from expirebridge.web.overview import Overview, span_in
from expirebridge.web.pages import task_values
from expirebridge.web.site import Site

PAUSE = 2.0
"""Seconds between two looks."""
MAX_STREAMS = 200
"""Open pages that are kept right; others must be loaded again by hand."""

_DISTANCES = re.compile(r'(<time data-ms="-?\d+">)[^<]*')
_Parts = Callable[[], Awaitable[dict[str, str]]]


class LivePages:
    """Their handlers."""

    def __init__(self, site: Site, overview: Overview) -> None:
        self._site = site
        self._overview = overview
        self._places = asyncio.Semaphore(MAX_STREAMS)

    async def overview(self, request: Request) -> Response:
        """The parts of the overview, whenever they have changed."""

        async def parts() -> dict[str, str]:
            present = await self._overview.present()
            course = await self._overview.course(request.query_params)
            span = span_in(request.query_params)
            return {
                "present": self._site.draw(request, "present.html", present=present, course=course),
                "course": self._site.draw(request, "course.html", course=course, span=span),
            }

        return self._stream(parts)

    async def task(self, request: Request) -> Response:
        """What moves on the page of a task."""
        id = wire.check_id(request.query_params.get("id", ""))

        async def parts() -> dict[str, str]:
            try:
                task = await self._site.bridge.get(id)
                if task is None:
                    return {"task": self._site.draw(request, "gone.html")}
                values = await task_values(self._site, task)
            except ServerError:
                return {}  # what was shown last stays
            return {"task": self._site.draw(request, "facts.html", **values)}

        return self._stream(parts)

    def _stream(self, parts: _Parts) -> Response:
        return _Stream(_events(parts), self._places)


class _Stream(StreamingResponse):
    """Events for one open page, if there is a place for it."""

    def __init__(self, events: AsyncIterator[str], places: asyncio.Semaphore) -> None:
        # A proxy that collects what it passes on (nginx) is told not to.
        headers = {"x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a place, and keep it for as long as the page is open."""
        if self._places.locked():
            await PlainTextResponse("Too many pages are open.", 503)(scope, receive, send)
            return
        # A place that is free is taken without a pause, in which another could take it.
        async with self._places:
            await super().__call__(scope, receive, send)


async def _events(parts: _Parts) -> AsyncIterator[str]:
    sent: dict[str, str] = {}
    while True:
        drawn = await parts()
        # Something is sent each time, so that a page that has gone is noticed.
        yield ": still here\n\n"
        for name, html in drawn.items():
            # How far a time is from now, the page itself keeps right.
            told = _DISTANCES.sub(r"\1", html)
            if sent.get(name) != told:
                sent[name] = told
                lines = "".join(f"data: {line}\n" for line in html.splitlines())
                yield f"event: {name}\n{lines}\n"
        await asyncio.sleep(PAUSE)
