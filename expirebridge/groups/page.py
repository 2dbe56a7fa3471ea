"""The pages of groups: the list of them, one with its members, and what is done to one."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from expirebridge.bridge import AsyncBridge
from expirebridge.errors import GroupNotFound, InvalidTask
from expirebridge.groups.fields import FIELDS
from expirebridge.groups.values import Group, GroupState
from expirebridge.task.fields import on_page, values_of
from expirebridge.task.keys import check_group
from expirebridge.task.listings import texts_of
from expirebridge.task.task import State
from expirebridge.web.actions import READ_ONLY, carry_out, read_form
from expirebridge.web.capability_pages import CapabilityPages
from expirebridge.web.context import Entry, PageContext, redirect
from expirebridge.web.overview import Overview
from expirebridge.web.search import lean

SHOWN_GROUPS = 200
"""Rows of the list."""
SHOWN_MEMBERS = 50
"""Members on a page of one group."""
ACTIONS = ("close", "cancel")
NOT_FOUND = "not found"


@dataclass(frozen=True, slots=True)
class GroupOrder:
    """An action on one group."""

    action: str
    name: str

    @classmethod
    def read(cls, form: Mapping[str, str]) -> "GroupOrder":
        """Read a form. Raises InvalidTask for an invalid one."""
        action = form.get("action", "")
        if action not in ACTIONS:
            raise InvalidTask(f"action: one of {', '.join(ACTIONS)}")
        return cls(action, check_group(form.get("name", "").strip()))

    async def carry_out(self, bridge: AsyncBridge) -> Mapping[str, int]:
        """Carry it out; return the state of the group, as the actions on tasks their results."""
        change = bridge.close_group if self.action == "close" else bridge.cancel_group
        try:
            return {(await change(self.name)).state: 1}
        except GroupNotFound:
            return {NOT_FOUND: 1}


def actions_on(group: Group) -> list[str]:
    """Those that make sense for a group as it is."""
    match group.state:
        case GroupState.OPEN:
            return ["close", "cancel"]
        case GroupState.CLOSED:
            return ["cancel"]
        case _:
            return []


class GroupPages:
    """The handlers of these pages."""

    def __init__(self, context: PageContext) -> None:
        self._context = context

    async def groups(self, request: Request) -> Response:
        """The groups, or the one that is asked for."""
        if name := request.query_params.get("name", "").strip():
            return await self._one(request, check_group(name))
        listing = await self._context.bridge.list_groups(limit=SHOWN_GROUPS)
        return self._context.page(
            request, "groups.html",
            groups=listing.groups, most=SHOWN_GROUPS,
            are_more=len(listing.groups) == SHOWN_GROUPS and not listing.complete,
            left_out=texts_of(listing.left_out), now=await self._context.now(),
        )  # fmt: skip

    async def act(self, request: Request) -> Response:
        """Close or cancel one group."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        order = GroupOrder.read(await read_form(request))
        work = order.carry_out(self._context.bridge)
        results = await carry_out(self._context, request, f"{order.action} group", order.name, work)
        return redirect(request, "groups", name=order.name, told=next(iter(results)))

    async def _one(self, request: Request, name: str) -> Response:
        group = await self._context.bridge.get_group(name)
        if group is None:
            return self._context.page(
                request, "trouble.html", status=404, title="No such group",
                text=f"No group has the name {name}. One is forgotten a day after it has ended.",
            )  # fmt: skip
        state = request.query_params.get("state") or None
        cursor = request.query_params.get("cursor") or None
        members = await self._context.store.run(
            self._context.operations.list(
                group=name, state=state, limit=SHOWN_MEMBERS, cursor=cursor
            )
        )
        return self._context.page(
            request, "one_group.html",
            group=group, shown=on_page(values_of(group, FIELDS)), choices=actions_on(group),
            state=State(state) if state else None,
            members=members, tasks=[self._context.redact(lean(task)) for task in members.tasks],
            left_out=texts_of(members.left_out), now=await self._context.now(),
            told=request.query_params.get("told", ""),
        )  # fmt: skip


def _routes(context: PageContext, _: Overview) -> list[BaseRoute]:
    pages = GroupPages(context)
    return [
        Route("/groups", pages.groups, name="groups"),
        Route("/groups", pages.act, methods=["POST"]),
    ]


PAGES = CapabilityPages(routes=_routes, entry=lambda _: Entry(40, "groups", "/groups", "Groups"))
