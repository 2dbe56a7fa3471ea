"""The pages that give a task other arguments: a form, then the difference, then it is done."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from expirebridge.errors import InvalidTask
from expirebridge.task import keys
from expirebridge.task.calls import editing
from expirebridge.task.calls.editing import EditedTask
from expirebridge.task.edited_arguments import changes, read_args, read_kwargs
from expirebridge.task.operations.editing import EDITABLE, check_edit, check_editable
from expirebridge.task.task import Change, Task
from expirebridge.web.actions import READ_ONLY, carry_out, read_form
from expirebridge.web.context import PageContext, redirect

_MAX_FORM = 8 * keys.MAX_ARGS
"""Bytes: a character can take three of them, and both kinds of arguments can be long."""
_OPTIONS = orjson.OPT_INDENT_2


class EditPages:
    """The handlers of these pages."""

    def __init__(self, context: PageContext) -> None:
        self._context = context

    async def form(self, request: Request) -> Response:
        """The form, with the present arguments."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        found = await find_editable(self._context, request.query_params.get("id", ""))
        if found is None:
            return await self._context.nothing_there(request)
        task = found.task
        return self._context.page(
            request, "edit.html",
            task=task, seen=_digest(task), differing=None, now=await self._context.now(),
            args=_indented(list(task.args)), kwargs=_indented(dict(task.kwargs)),
        )  # fmt: skip

    async def submit(self, request: Request) -> Response:
        """Show the difference; if it is confirmed, and the task is as it was shown, do it."""
        if not self._context.actions:
            return PlainTextResponse(READ_ONLY, 403)
        form = await read_form(request, most=_MAX_FORM)
        args, kwargs = read_args(form.get("args", "")), read_kwargs(form.get("kwargs", ""))
        found = await find_editable(self._context, form.get("id", ""))
        if found is None:
            return await self._context.nothing_there(request)
        is_same = form.get("seen") == _digest(found.task)
        if "confirmed" not in form or not is_same:
            return await self._preview(request, found, args, kwargs, is_same=is_same)
        work = self._edit(found.task, args, kwargs)
        results = await carry_out(self._context, request, "edit", found.task.id, work)
        return redirect(request, "task", id=found.task.id, told=next(iter(results)))

    async def _preview(
        self,
        request: Request,
        found: EditedTask,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        is_same: bool,
    ) -> Response:
        task, operations = found.task, self._context.operations
        _, checked = await self._context.store.run(check_edit(operations, found, args, kwargs))
        return self._context.page(
            request, "edit.html",
            task=task, seen=_digest(task), is_same=is_same, checked=checked,
            differing=changes(task.args, task.kwargs, args, kwargs),
            args=orjson.dumps(args).decode(), kwargs=orjson.dumps(kwargs).decode(),
            now=await self._context.now(),
        )  # fmt: skip

    async def _edit(
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Mapping[Change, int]:
        return {await self._context.bridge.edit(task.id, args, kwargs, expected=task): 1}


async def find_editable(context: PageContext, typed: str) -> EditedTask | None:
    """The task, if its arguments may be shown and edited. Raises InvalidTask if not."""
    id = keys.check_id(typed.strip())
    found = await context.store.run(editing.read_task(id, context.settings.key_ring))
    if found is None:
        return None
    if found.task.state not in EDITABLE:
        raise InvalidTask(f"task {id!r} is {found.task.state}: its arguments stay as they are")
    if hides_arguments(found.task, context.redact(found.task)):
        raise InvalidTask("arguments are not shown here: use expirebridge edit")
    check_editable(found)
    return found


async def offers_edit(context: PageContext, task: Task) -> bool:
    """True if the form for a task's arguments would open."""
    if not context.actions or task.state not in EDITABLE:
        return False
    try:
        return await find_editable(context, task.id) is not None
    except InvalidTask:
        return False


def hides_arguments(task: Task, shown: Task) -> bool:
    """True if a redaction hides arguments of a task."""
    return (shown.args, shown.kwargs) != (task.args, task.kwargs)


def _digest(task: Task) -> str:
    """Identifies the function and the arguments of a task, without showing them."""
    call = task.func.encode() + b"?" + keys.encode_args(task.args, task.kwargs)
    return hashlib.sha256(call).hexdigest()


def _indented(value: object) -> str:
    return orjson.dumps(value, option=_OPTIONS).decode()
