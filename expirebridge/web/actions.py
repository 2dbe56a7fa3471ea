"""The pages that change tasks, one or all that match, and the one that shows what was done."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from expirebridge.model import keys
from expirebridge.model.task import Change
from expirebridge.store import commands
from expirebridge.web.action_log import READ_ONLY, carry_out, read_form
from expirebridge.web.context import Site, redirect
from expirebridge.web.search import BULK_LIMIT, Found, Search, find
from expirebridge.web.steering import Order

_LOGGED = 200


class ActionPages:
    """The handlers of these pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def act(self, request: Request) -> Response:
        """Do something to one task."""
        if not self._site.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request)
        order, id = Order.read(form), keys.check_id(form.get("id", "").strip())
        changes = await self._carry_out(request, order, [id], target=id)
        return redirect(request, "task", id=id, told=next(iter(changes)))

    async def preview(self, request: Request) -> Response:
        """Show which tasks an action on all that match would change."""
        search, order = Search.read(request.query_params), Order.read(request.query_params)
        found = await self._all(search, order)
        return self._site.page(
            request, "bulk.html",
            search=search, order=order, found=found, sample=found.tasks[:10],
            by=request.query_params.get("by", ""), done=None, limit=BULK_LIMIT,
            now=await self._site.now(),
        )  # fmt: skip

    async def act_on_all(self, request: Request) -> Response:
        """Do something to all that match now."""
        if not self._site.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request)
        search, order = Search.read(form), Order.read(form)
        found = await self._all(search, order)
        ids = list(dict.fromkeys(task.id for task in found.tasks))
        done = await self._carry_out(request, order, ids, target=search.query())
        return self._site.page(
            request, "bulk.html",
            search=search, order=order, found=found, sample=[], by=form.get("by", ""),
            done=done, limit=BULK_LIMIT, now=await self._site.now(),
        )  # fmt: skip

    async def log(self, request: Request) -> Response:
        """The log of actions: what was done, and by whom."""
        noted = await self._site.store.run(commands.read_actions(_LOGGED))
        return self._site.page(
            request, "actions.html", noted=noted, now=await self._site.now(), limit=_LOGGED
        )

    async def _all(self, search: Search, order: Order) -> Found:
        """All matching tasks that this action is possible for, up to the limit."""
        found = await self._site.store.run(
            find(
                search,
                self._site.operations,
                self._site.settings,
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
        work = order.carry_out(self._site.bridge, ids)
        return await carry_out(self._site, request, order.choice.name, target, work)
