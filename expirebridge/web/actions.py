"""The pages that change tasks, one or all that match, and the one that shows what was done."""

import logging
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from expirebridge.bridge import AsyncBridge
from expirebridge.errors import InvalidTask, ServerError
from expirebridge.task import keys
from expirebridge.task.absence import what_is_elsewhere
from expirebridge.task.calls import actions
from expirebridge.task.durations import seconds_of
from expirebridge.task.task import UNCLAIMED, Change, State
from expirebridge.task.texts import event
from expirebridge.web.context import PageContext, redirect
from expirebridge.web.search import BULK_LIMIT, Search, SearchPage, find

# Common to all actions: the form, and the record of the user who did it.

logger = logging.getLogger("expirebridge")

READ_ONLY = "This dashboard is read only."
_MAX_FORM = 16 * 1024

Result = TypeVar("Result", bound=str)


async def read_form(request: Request, *, most: int = _MAX_FORM) -> dict[str, str]:
    """The fields of a form of at most so many bytes. Raises InvalidTask if this is not one."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise InvalidTask("the form is too large")
    try:
        return dict(parse_qsl(body.decode(), max_num_fields=20, errors="strict"))
    except ValueError:
        raise InvalidTask("this is not a form") from None


async def carry_out(
    context: PageContext,
    request: Request,
    action: str,
    target: str,
    work: Awaitable[Mapping[Result, int]],
) -> Mapping[Result, int]:
    """Do the work of an action, and record it with its results, also if it fails midway."""
    who, result = str(request.state.who), "failed midway"
    try:
        results = await work
        result = ", ".join(f"{n:,} {one}" for one, n in results.items()) or "nothing to do"
    finally:
        logger.warning(
            "%s: %s on %s: %s", who, action, target, result,
            extra=event("action", who=who, action=action, target=target, result=result),
        )  # fmt: skip
        await _note(context, who, action, target, result)
    return results


async def _note(context: PageContext, who: str, action: str, target: str, result: str) -> None:
    """Record the action. If that fails, it is still done, and in the log."""
    try:
        await context.store.run(
            actions.note_action(who=who, action=action, target=target, result=result)
        )
    except ServerError as failure:
        logger.warning(
            "an action could not be recorded: %s",
            failure,
            extra=event("unnoted", error=failure),
        )


# The actions on tasks, on one or on all that match a filter.


@dataclass(frozen=True, slots=True)
class Choice:
    """An action."""

    name: str
    label: str
    states: frozenset[State]
    """The states of tasks for which it makes sense."""
    takes_time: bool = False
    grave: bool = False
    """True if it is hard to undo."""


_UNCLAIMED = frozenset(UNCLAIMED)

CHOICES = {
    choice.name: choice
    for choice in (
        Choice("run_now", "Run now", frozenset({State.PENDING, State.PAUSED})),
        Choice("retry", "Retry", frozenset({State.FAILED})),
        Choice("run_again", "Run again", frozenset({State.SUCCEEDED, State.CANCELLED})),
        Choice("put_off", "Put off", _UNCLAIMED, takes_time=True),
        Choice("pause", "Pause", frozenset({State.PENDING, State.WAITING})),
        Choice("resume", "Resume", frozenset({State.PAUSED})),
        Choice("cancel", "Cancel", _UNCLAIMED | {State.RUNNING}, grave=True),
    )
}


def actions_in(state: State | None) -> list[Choice]:
    """The actions on tasks in this state; None: in any state."""
    return [choice for choice in CHOICES.values() if state is None or state in choice.states]


@dataclass(frozen=True, slots=True)
class Order:
    """An action, with its duration if it takes one."""

    choice: Choice
    by: float = 0.0

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> "Order":
        """Read a form or a query. Raises InvalidTask for an invalid one."""
        choice = CHOICES.get(str(form.get("action", "")))
        if choice is None:
            raise InvalidTask(f"action: one of {', '.join(CHOICES)}")
        if not choice.takes_time:
            return cls(choice)
        return cls(choice, seconds_of(str(form.get("by", "")).strip(), name="by"))

    async def carry_out(self, bridge: AsyncBridge, ids: Sequence[str]) -> Mapping[Change, int]:
        """Carry the action out on these tasks; return how many had which result."""
        match self.choice.name:
            case "cancel":
                return await bridge.cancel_all(ids)
            case "pause":
                return await bridge.pause_all(ids)
            case "resume":
                return await bridge.resume_all(ids)
            case "put_off":
                return await bridge.put_off_all(ids, self.by)
            case _:
                return Counter([await bridge.run_now(id) for id in ids])


_LOGGED = 200


class ActionPages:
    """The handlers of these pages."""

    def __init__(self, context: PageContext) -> None:
        self._context = context

    async def act(self, request: Request) -> Response:
        """Do something to one task."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request)
        order, id = Order.read(form), keys.check_id(form.get("id", "").strip())
        changes = await self._carry_out(request, order, [id], target=id)
        return redirect(request, "task", id=id, told=next(iter(changes)))

    async def preview(self, request: Request) -> Response:
        """Show which tasks an action on all that match would change."""
        search, order = Search.read(request.query_params), Order.read(request.query_params)
        found = await self._all(search, order)
        return self._context.page(
            request, "bulk.html",
            search=search, order=order, found=found, sample=found.tasks[:10],
            by=request.query_params.get("by", ""), done=None, limit=BULK_LIMIT,
            elsewhere=await self._elsewhere(), now=await self._context.now(),
        )  # fmt: skip

    async def act_on_all(self, request: Request) -> Response:
        """Do something to all that match now."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request)
        search, order = Search.read(form), Order.read(form)
        found = await self._all(search, order)
        ids = list(dict.fromkeys(task.id for task in found.tasks))
        done = await self._carry_out(request, order, ids, target=search.query())
        return self._context.page(
            request, "bulk.html",
            search=search, order=order, found=found, sample=[], by=form.get("by", ""),
            done=done, limit=BULK_LIMIT, elsewhere=await self._elsewhere(),
            now=await self._context.now(),
        )  # fmt: skip

    async def log(self, request: Request) -> Response:
        """The log of actions: what was done, and by whom."""
        noted = await self._context.store.run(actions.read_actions(_LOGGED))
        return self._context.page(
            request, "actions.html", noted=noted, now=await self._context.now(), limit=_LOGGED
        )

    async def _elsewhere(self) -> list[str]:
        return await self._context.store.run(what_is_elsewhere())

    async def _all(self, search: Search, order: Order) -> SearchPage:
        """All matching tasks that this action is possible for, up to the limit."""
        found = await self._context.store.run(
            find(
                search,
                self._context.operations,
                self._context.settings,
                rows=BULK_LIMIT,
                limit=BULK_LIMIT,
            )
        )
        found.tasks[:] = [
            task
            for task in found.tasks
            # Another client may have put an id there that no operation accepts.
            if task.state in order.choice.states and keys.is_id(task.id)
        ]
        return found

    async def _carry_out(
        self, request: Request, order: Order, ids: list[str], *, target: str
    ) -> Mapping[Change, int]:
        work = order.carry_out(self._context.bridge, ids)
        return await carry_out(self._context, request, order.choice.name, target, work)
