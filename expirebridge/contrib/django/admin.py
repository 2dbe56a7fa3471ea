"""The admin: tasks by state, a task with its history, and series."""

import functools
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from expirebridge.bridge import Bridge, run_on
from expirebridge.contrib.django.models import RedisSeries, RedisTask
from expirebridge.errors import InvalidTask, ServerError
from expirebridge.task.fields import FIELDS, Format, capability_fields, on_page, values_of
from expirebridge.task.keys import check_func
from expirebridge.task.listings import Listing
from expirebridge.task.task import Change, State, Task

PAGE: Final = 50
"""Tasks on a page."""
RETRY, FORGET = "retry", "forget"
_WORDS: Final = {RETRY: "Run now", FORGET: "Forget"}
NOT_HERE: Final = {"after", "then", "in_clear"}
"""Fields of a task that only the other pages have."""
_TO_BE_FORGOTTEN: Final = "to be forgotten: a listener removes it in its next pass"


@functools.cache
def _bridge() -> Bridge:
    return Bridge(unknown="off")


class _Pages(admin.ModelAdmin):
    """Pages that read Redis, in place of those that read a table."""

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody adds anything here."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """What is finished is forgotten by itself."""
        return False

    def changelist_view(self, request: Any, extra_context: Any = None) -> Any:
        """Show the list."""
        return self._answer(request, self._list, extra_context or {})

    def change_view(
        self,
        request: Any,
        object_id: str,
        form_url: str = "",  # noqa: ARG002 - Django's
        extra_context: Any = None,
    ) -> Any:
        """Show one."""
        show = functools.partial(self._one, id=unquote(object_id))
        return self._answer(request, show, extra_context or {})

    def _answer(self, request: Any, show: Callable[..., Any], context: dict[str, Any]) -> Any:
        """The page, or what went wrong, for those who may see it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request), "opts": self.opts,
            "title": self.opts.verbose_name_plural.capitalize(), **context,
        }  # fmt: skip
        try:
            return show(request, context)
        except (InvalidTask, ServerError) as error:
            context["error"] = str(error)
            status = 400 if isinstance(error, InvalidTask) else 503
            return self._page(request, "trouble.html", context, status=status)

    def _list(self, request: Any, context: dict[str, Any]) -> Any:
        raise NotImplementedError

    def _one(self, request: Any, context: dict[str, Any], *, id: str) -> Any:  # noqa: ARG002
        raise Http404(f"there is no page about {id}")

    def _page(self, request: Any, name: str, context: dict[str, Any], status: int = 200) -> Any:
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/expirebridge/{name}", context, status=status)


@admin.register(RedisTask)
class TaskAdmin(_Pages):
    """Tasks by state; the permission to change them runs and forgets them."""

    def _list(self, request: Any, context: dict[str, Any]) -> Any:
        if request.method == "POST":
            back = request.get_full_path()
            return self._act(request, context, request.POST.getlist("id"), back)
        state = _state_of(request.GET.get("state", ""))
        func = request.GET.get("func", "").strip()
        listing, hint = _found(state, func, request.GET.get("cursor") or None)
        asked = _asked_to_forget(listing.tasks)
        counts = _bridge().count()
        return self._page(
            request,
            "tasks.html",
            {
                **context,
                "counts": [(one.value, getattr(counts, one.value)) for one in State],
                "state": state.value, "func": func, "hint": hint,
                "rows": [(quote(task.id), task, task.id in asked) for task in listing.tasks],
                "cursor": listing.cursor, "left_out": listing.left_out,
                "actions": _WORDS.items() if self._may_act(request, state) else (),
            },
        )  # fmt: skip

    def _one(self, request: Any, context: dict[str, Any], *, id: str) -> Any:
        if request.method == "POST":
            back = reverse("admin:expirebridge_redistask_changelist")
            return self._act(request, context, [id], back)
        task = _bridge().get(id)
        if task is None:
            raise Http404(f"there is no task {id}: {_bridge().why_absent(id)}")
        allowed = self.has_change_permission(request)
        asked = bool(_asked_to_forget([task]))
        fields = [*values_of(task, FIELDS), *run_on(_bridge(), capability_fields(task))]
        return self._page(
            request,
            "task.html",
            {
                **context,
                "title": task.id, "task": task, "why": _bridge().why(id),
                "shown": [
                    (field, _json(value) if field.format is Format.JSON else value)
                    for field, value in on_page(fields, apart=NOT_HERE)
                ],
                "kwargs": _json(task.kwargs) if task.kwargs else "",
                "history": list(reversed(task.history)),
                "going": _TO_BE_FORGOTTEN if asked else "",
                "actions": _actions(task, asked=asked) if allowed else (),
            },
        )  # fmt: skip

    def _may_act(self, request: Any, state: State) -> bool:
        return state is State.FAILED and bool(self.has_change_permission(request))

    def _act(self, request: Any, context: dict[str, Any], ids: list[str], back: str) -> Any:
        if not self.has_change_permission(request):
            raise PermissionDenied
        action = request.POST.get("action")
        if action not in _WORDS:
            raise InvalidTask(f"action={action!r}: one of {', '.join(_WORDS)}")
        if not ids:
            messages.warning(request, "Select the tasks first.")
        if ids and action == FORGET and "confirmed" not in request.POST:
            asking = {**context, "title": "Are you sure?", "ids": ids, "back": back}
            return self._page(request, "forget.html", asking)
        for id in ids:
            level, text = self._do(request, action, id)
            messages.add_message(request, level, f"Task {id}: {text}")
        return HttpResponseRedirect(back)

    def _do(self, request: Any, action: str, id: str) -> tuple[int, str]:
        """Do this with one task; what is to be said of it, and how loudly."""
        task = _bridge().get(id) if action == FORGET else None
        if task is not None and _asked_to_forget([task]):
            return messages.INFO, f"already {_TO_BE_FORGOTTEN}"
        change = _run(action, id)
        if change not in {Change.DUE_NOW, Change.FORGOTTEN}:
            return messages.WARNING, change.value
        self.log_change(request, RedisTask(id=id), _WORDS[action])
        return messages.SUCCESS, _TO_BE_FORGOTTEN if action == FORGET else change.value


@admin.register(RedisSeries)
class SeriesAdmin(_Pages):
    """Series, to look at."""

    def _list(self, request: Any, context: dict[str, Any]) -> Any:
        listing = _bridge().list_series()
        return self._page(request, "series.html", {**context, "series": listing.series})


def _state_of(text: str) -> State:
    try:
        return State(text or State.PENDING)
    except ValueError:
        raise InvalidTask(f"state={text!r}: one of {', '.join(State)}") from None


def _found(state: State, func: str, cursor: str | None) -> tuple[Listing, str]:
    """The tasks on a page; what to search for instead, if that can be no function's name."""
    try:
        if func:
            check_func(func)
    except InvalidTask:
        hint = "give the whole name of a function, such as shop.remind"
        return Listing(tasks=[], examined=0, complete=True), hint
    return _bridge().list(state=state, func=func or None, limit=PAGE, cursor=cursor), ""


def _asked_to_forget(tasks: Sequence[Task]) -> set[str]:
    """The ids of failed tasks that somebody had forgotten here, and no listener removed yet."""
    ended = {task.id: task.ended for task in tasks if task.state is State.FAILED and task.ended}
    if not ended:
        return set()
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(RedisTask, for_concrete_model=False),
        object_id__in=ended, change_message=_WORDS[FORGET],
    )  # fmt: skip
    return {one.object_id for one in entries if _aware(one.action_time) >= ended[one.object_id]}


def _aware(moment: datetime) -> datetime:
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)


def _run(action: str, id: str) -> Change:
    if action == RETRY:
        return _bridge().run_now(id)
    [change] = _bridge().purge_failed([id])
    return change


def _actions(task: Task, *, asked: bool) -> list[tuple[str, str]]:
    """What can be done with a task in its state."""
    possible = [] if task.state is State.RUNNING else [RETRY]
    if task.state is State.FAILED and not asked:
        possible.append(FORGET)
    return [(name, _WORDS[name]) for name in possible]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
