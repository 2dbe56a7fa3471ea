"""The page of limits and holds: the holds, the fullest lanes, and putting on hold and releasing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from expirebridge.bridge import AsyncBridge
from expirebridge.errors import InvalidTask
from expirebridge.limits.holding import LONGEST_TEXT
from expirebridge.limits.lanes import without_value
from expirebridge.task.durations import seconds_of
from expirebridge.task.listings import texts_of
from expirebridge.web.actions import READ_ONLY, carry_out, read_form
from expirebridge.web.capability_pages import CapabilityPages
from expirebridge.web.context import Entry, PageContext, redirect
from expirebridge.web.overview import Overview

SHOWN_LANES = 100
"""Rows of the table of lanes."""
KINDS = {"func": "Function", "tag": "Tag", "all": "All tasks"}
"""What can be on hold, with the labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOrder:
    """An action on a function, a tag or all tasks."""

    action: str
    """`hold` or `release`."""
    kind: str
    name: str
    """Of the function or the tag; empty for all tasks."""
    reason: str
    lasts: float | None
    """Seconds after which a hold ends; None: when it is released."""
    spread: float | None
    """Seconds over which what is released goes on; None: at once."""

    @classmethod
    def read(cls, form: Mapping[str, str]) -> "HoldOrder":
        """Read a form. Raises InvalidTask for an invalid one."""
        action, kind = form.get("action", ""), form.get("kind", "")
        if action not in {"hold", "release"}:
            raise InvalidTask("action: one of hold, release")
        if kind not in KINDS:
            raise InvalidTask(f"kind: one of {', '.join(KINDS)}")
        name, lasts, spread = (form.get(each, "").strip() for each in ("name", "for", "over"))
        if kind == "all" and name:
            raise InvalidTask("name: leave it empty for all tasks")
        return cls(
            action=action,
            kind=kind,
            name=name,
            reason=form.get("reason", "").strip(),
            lasts=seconds_of(lasts, name="for") if lasts else None,
            spread=seconds_of(spread, name="over") if spread else None,
        )

    async def carry_out(self, bridge: AsyncBridge, *, who: str, now: datetime) -> Mapping[str, int]:
        """Carry it out; return the result, as the actions on tasks do."""
        func = self.name if self.kind == "func" else None
        tag = self.name if self.kind == "tag" else None
        is_all = self.kind == "all"
        if self.action == "release":
            was_there = await bridge.release(func=func, tag=tag, all=is_all, spread=self.spread)
            return {"released" if was_there else "not on hold": 1}
        until = None if self.lasts is None else now + timedelta(seconds=self.lasts)
        await bridge.hold(func=func, tag=tag, all=is_all, reason=self.reason, until=until, by=who)
        return {"on hold": 1}


class LimitPages:
    """The handlers of this page."""

    def __init__(self, context: PageContext, overview: Overview) -> None:
        self._context = context
        self._overview = overview

    async def limits(self, request: Request) -> Response:
        """The holds, the fullest lanes, and the limits."""
        found = await self._context.bridge.limits(lanes=SHOWN_LANES)
        # The names of lanes have arguments in them, which a redaction cannot look at.
        name_of = without_value if self._context.redacts else str
        return self._context.page(
            request, "limits.html",
            holds=await self._context.bridge.holds(), kinds=KINDS, longest=LONGEST_TEXT,
            functions=await self._overview.function_names() if self._context.actions else [],
            found=found, name_of=name_of, most=SHOWN_LANES, now=await self._context.now(),
            left_out=texts_of(found.left_out), told=request.query_params.get("told", ""),
        )  # fmt: skip

    async def act(self, request: Request) -> Response:
        """Put a function, a tag or all tasks on hold, or release them."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        order = HoldOrder.read(await read_form(request))
        work = order.carry_out(
            self._context.bridge, who=str(request.state.who), now=await self._context.now()
        )
        target = f"{order.kind} {order.name}".strip()
        results = await carry_out(self._context, request, order.action, target, work)
        return redirect(request, "limits", told=next(iter(results)))


def _routes(context: PageContext, overview: Overview) -> list[BaseRoute]:
    pages = LimitPages(context, overview)
    return [
        Route("/limits", pages.limits, name="limits"),
        Route("/limits", pages.act, methods=["POST"]),
    ]


PAGES = CapabilityPages(routes=_routes, entry=lambda _: Entry(50, "limits", "/limits", "Limits"))
