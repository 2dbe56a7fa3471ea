"""The pages that show: the overview, the list of tasks, and one task."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from expirebridge.task import keys
from expirebridge.task.fields import (
    FIELDS,
    FieldValue,
    Format,
    capability_fields,
    on_page,
    values_of,
)
from expirebridge.task.listings import texts_of
from expirebridge.task.reason import Reason
from expirebridge.task.reasons import Situation
from expirebridge.task.task import UNCLAIMED, Task
from expirebridge.web.actions import actions_in
from expirebridge.web.capability_pages import links_of
from expirebridge.web.context import PageContext, cut, redirect
from expirebridge.web.edit import hides_arguments, offers_edit
from expirebridge.web.overview import Overview, span_in
from expirebridge.web.search import MAX_EXAMINED, Search, check_cursor, find

APART = {"func", "args", "result", "error"}
"""The page of a task has these apart from the other facts."""
OPTIONS = orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS


class TaskPages:
    """The handlers of these pages."""

    def __init__(self, context: PageContext, overview: Overview) -> None:
        self._context = context
        self._overview = overview

    async def overview(self, request: Request) -> Response:
        """The overview."""
        return self._context.page(
            request, "overview.html",
            present=await self._overview.present(),
            course=await self._overview.course(request.query_params),
            span=span_in(request.query_params),
        )  # fmt: skip

    async def tasks(self, request: Request) -> Response:
        """A page of the matching tasks."""
        search = Search.read(request.query_params)
        cursor = check_cursor(request.query_params.get("cursor", "0"))
        counts = await self._context.bridge.count()
        found = await self._context.store.run(
            find(
                search,
                self._context.operations,
                self._context.settings,
                cursor=cursor,
                limit=MAX_EXAMINED,
            )
        )
        return self._context.page(
            request, "tasks.html",
            search=search, counts=counts, found=found, cursor=cursor,
            tasks=[self._context.redact(task) for task in found.tasks],
            total=getattr(counts, search.state) if search.state else None,
            now=await self._context.now(),
            choices=actions_in(search.state),
            functions=await self._overview.function_names(),
            left_out=texts_of(found.left_out or counts.left_out),
        )  # fmt: skip

    async def find(self, request: Request) -> Response:
        """Redirect to the task with this id; without one, to those whose ids begin with it."""
        id = keys.check_id(request.query_params.get("id", "").strip())
        task = await self._context.bridge.get(id)
        return redirect(request, "task" if task else "tasks", id=id)

    async def task(self, request: Request) -> Response:
        """One task."""
        id = request.query_params.get("id", "").strip()
        found = await self._context.find(keys.check_id(id))
        if found is None:
            return self._context.page(
                request, "trouble.html", status=404, title="No such task",
                text=f"No task has the id {id}: {await self._context.bridge.why_absent(id)}.",
            )  # fmt: skip
        return self._context.page(
            request, "task.html",
            **await task_values(self._context, found),
            told=request.query_params.get("told", ""),
        )  # fmt: skip

    async def arguments(self, request: Request) -> Response:
        """The arguments of one task. They are shown only on request."""
        task = await self._context.bridge.get(request.query_params.get("id", ""))
        if task is None:
            return await self._context.nothing_there(request)
        shown = self._context.redact(task)
        _, on_request = await _added(self._context, shown)
        return self._context.page(
            request, "arguments.html",
            more=[(field.label, _json(value)) for field, value in on_request],
            args=_json(list(shown.args)), kwargs=_json(dict(shown.kwargs)),
            # The key's name holds the arguments, so a redaction hides it, too.
            key=shown.key.decode(errors="backslashreplace") if shown == task else "",
            result=_json(shown.result),
        )  # fmt: skip


async def task_values(context: PageContext, found: Situation) -> dict[str, Any]:
    """The values for the template of a task, or for the parts of it that change."""
    task = found.task
    shown = context.redact(task)
    added, on_request = await _added(context, shown)
    return {
        "task": shown,
        "shown": on_page([*values_of(shown, FIELDS), *added], apart=APART),
        "on_request": [field.label for field, _ in on_request],
        "reason": reason_of(found, shown),
        "now": await context.now(),
        "choices": actions_in(task.state),
        "editable": await offers_edit(context, task),
        "links": list(links_of(task)),
        "history": getattr(shown, "history", ()),
        # If a redaction hides the last error, earlier errors are hidden, too.
        "errors": shown.error == task.error,
        "waits": task.state in UNCLAIMED,
    }


async def _added(
    context: PageContext, task: Task
) -> tuple[Sequence[FieldValue], Sequence[FieldValue]]:
    """What capabilities add to a task, and what of it is shown on request: as arguments, JSON."""
    added = await context.store.run(capability_fields(task))
    at_once = [one for one in added if one[0].format is not Format.JSON]
    return at_once, [one for one in added if one[0].format is Format.JSON]


def reason_of(found: Situation, shown: Task) -> Reason:
    """The reason for a task's state, without what a redaction hides: errors, and lanes' values."""
    task, facts = found.task, found.circumstances
    if shown.error != task.error:
        history = tuple(replace(one, error="") for one in task.history)
        task = replace(task, error=shown.error or "", history=history)
    facts = replace(facts, task=task, hides_arguments=hides_arguments(task, shown))
    return replace(found, circumstances=facts).reason()


def _json(value: object) -> str:
    try:
        return cut(orjson.dumps(value, option=OPTIONS).decode())
    except TypeError:  # a redaction may return anything
        return cut(str(value))
