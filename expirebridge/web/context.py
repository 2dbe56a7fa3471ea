"""Shared by all pages: the source of the data, the templates, and the error pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from expirebridge.bridge import AsyncBridge, Operations
from expirebridge.checks import MAX_OVERDUE
from expirebridge.connection.clients import shown_server
from expirebridge.observe.recent_tasks import SAMPLE
from expirebridge.settings import Settings
from expirebridge.store.partitions import AsyncPartitions
from expirebridge.task.calls import inspection
from expirebridge.task.durations import human
from expirebridge.task.reasons import Situation, find_situation
from expirebridge.task.task import State, Task, from_ms, to_ms

Redact = Callable[[Task], Task]
"""Receives a task before it is shown, and returns it without what must not be shown."""

MAX_TEXT = 20_000
"""The most characters of an argument, a result or an error that a page shows."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """A page in the navigation."""

    order: int
    """Where it is in the navigation, the lowest first."""
    name: str
    path: str
    label: str


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """The data source, settings and templates that all pages share."""

    bridge: AsyncBridge
    operations: Operations
    """Operations for lists, and for readings that combine several calls. They have no keys."""
    store: AsyncPartitions
    settings: Settings
    actions: bool
    """True if the pages have actions."""
    redact: Redact
    redacts: bool
    """True if something may be hidden: then what `redact` cannot look at is not shown."""
    entries: Sequence[Entry]
    """The navigation."""

    async def find(self, id: str) -> Situation | None:
        """Read a task, and all about the reason for its state; None if there is no such task."""
        return await self.store.run(find_situation(id, self.settings))

    async def now(self) -> datetime:
        """The server's time, the only clock that is used."""
        return from_ms(await self.store.run(inspection.read_time()))

    def page(
        self, request: Request, template: str, *, status: int = 200, **values: Any
    ) -> HTMLResponse:
        """Render a page, or a part of one."""
        return HTMLResponse(self.draw(request, template, **values), status)

    def draw(self, request: Request, template: str, **values: Any) -> str:
        """Render a page, or a part of one, as text."""
        return _TEMPLATES.get_template(template).render(
            base=request.scope.get("root_path", "").rstrip("/"),
            path=request.url.path,
            actions=self.actions,
            server=shown_server(self.settings.url, self.store.client),
            states=list(State),
            entries=self.entries,
            has_ledger=self.settings.ledger is not None,
            **values,
        )

    async def refused(self, request: Request, error: Exception) -> Response:
        """The page for an invalid request."""
        return self.page(request, "trouble.html", status=400, title="Not possible", text=str(error))

    async def troubled(self, request: Request, error: Exception) -> Response:
        """The page for a server that failed or refused the call."""
        return self.page(
            request, "trouble.html", status=503, title="The server does not answer", text=str(error)
        )

    async def troubled_by_ledger(self, request: Request, error: Exception) -> Response:
        """The page for a ledger whose database failed or refused the call."""
        return self.page(
            request, "trouble.html", status=503, title="The ledger does not answer", text=str(error)
        )

    async def nothing_there(self, request: Request, _: Exception | None = None) -> Response:
        """The page for a path that does not exist."""
        return self.page(
            request,
            "trouble.html",
            status=404,
            title="Not found",
            text="There is no such page.",
        )


def redirect(request: Request, page: str, **query: str) -> RedirectResponse:
    """Redirect to another page of the dashboard, wherever it is mounted."""
    base = request.scope.get("root_path", "").rstrip("/")
    return RedirectResponse(f"{base}/{page}?{urlencode(query)}", 303)


def _clock(moment: datetime) -> Markup:
    """A moment, to the millisecond in UTC, and beside it as the browser's clock has it."""
    text = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"
    utc = Markup('<time datetime="{}Z">{}</time>').format(text.replace(" ", "T"), text)
    return utc + " " + _local(moment)


def _local(moment: datetime) -> Markup:
    """A place for a moment by the browser's clock; the page's script writes it there."""
    return Markup('<time class="local" datetime="{:%Y-%m-%dT%H:%M:%S}Z"></time>').format(moment)


def _relative(moment: datetime, now: datetime) -> Markup:
    """The distance of a moment from now, which the open page keeps up to date."""
    return Markup('<time data-ms="{}">{}</time>').format(to_ms(moment), distance(moment, now))


def distance(moment: datetime, now: datetime) -> str:
    """The distance of a moment from now, in words: `in 2h 5m`, `3s ago`."""
    seconds = (moment - now).total_seconds()
    words = human(abs(seconds)) if abs(seconds) >= 1 else "0s"
    return f"in {words}" if seconds > 0 else f"{words} ago"


def _lasted(seconds: float | None) -> str:
    """A duration, or an empty text if there is none. If a clock went back, it is 0."""
    return "" if seconds is None else human(max(seconds, 0))


def brief(error: str) -> str:
    """The short form of an error: the last line of its traceback."""
    lines = error.strip().splitlines()
    return cut(lines[-1], 160) if lines else ""


def cut(text: str, length: int = MAX_TEXT) -> str:
    """The beginning of a text, at most `length` characters."""
    return text if len(text) <= length else f"{text[:length]} … ({len(text):,} characters)"


def end(text: str, length: int = MAX_TEXT) -> str:
    """The end of a text, at most `length` characters."""
    return text if len(text) <= length else f"({len(text):,} characters) … {text[-length:]}"


# Escapes every value, whatever a template is called, and refuses undefined names.
_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters.update(
    clock=_clock, local=_local, relative=_relative, brief=brief, cut=cut, end=end, ms=to_ms,
    human=human, lasted=_lasted, number=lambda value: f"{value:,}",
)  # fmt: skip
_TEMPLATES.globals.update(max_overdue=MAX_OVERDUE, sample=SAMPLE)
