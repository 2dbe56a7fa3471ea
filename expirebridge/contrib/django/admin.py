"""The admin: tasks by state, a task with its history, and series."""

import functools
import json
from collections.abc import Callable
from typing import Any, Final

from django.contrib import admin, messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from expirebridge.contrib.django.models import RedisSeries, RedisTask
from expirebridge.errors import InvalidTask, ServerError
from expirebridge.model.task import Change, State, Task
from expirebridge.producer.bridge import Bridge

PAGE: Final = 50
"""Tasks on a page."""
RETRY, FORGET = "retry", "forget"
_WORDS: Final = {RETRY: "Run now", FORGET: "Forget"}


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
            return self._act(request, request.POST.getlist("id"), request.get_full_path())
        state = _state_of(request.GET.get("state", ""))
        func = request.GET.get("func", "").strip()
        listing = _bridge().list(
            state=state, func=func or None, limit=PAGE, cursor=request.GET.get("cursor") or None
        )
        counts = _bridge().count()
        return self._page(
            request,
            "tasks.html",
            {
                **context,
                "counts": [(one.value, getattr(counts, one.value)) for one in State],
                "state": state.value, "func": func,
                "rows": [(quote(task.id), task) for task in listing.tasks],
                "cursor": listing.cursor, "left_out": listing.left_out,
                "actions": _WORDS.items() if self._may_act(request, state) else (),
            },
        )  # fmt: skip

    def _one(self, request: Any, context: dict[str, Any], *, id: str) -> Any:
        if request.method == "POST":
            return self._act(request, [id], reverse("admin:expirebridge_redistask_changelist"))
        task = _bridge().get(id)
        if task is None:
            raise Http404(f"there is no task {id}")
        allowed = self.has_change_permission(request)
        return self._page(
            request,
            "task.html",
            {
                **context,
                "title": task.id, "task": task, "why": _bridge().why(id),
                "args": _json(task.args), "kwargs": _json(task.kwargs) if task.kwargs else "",
                "result": _json(task.result) if task.result is not None else "",
                "history": list(reversed(task.history)),
                "actions": _actions(task) if allowed else (),
            },
        )  # fmt: skip

    def _may_act(self, request: Any, state: State) -> bool:
        return state is State.FAILED and bool(self.has_change_permission(request))

    def _act(self, request: Any, ids: list[str], back: str) -> Any:
        if not self.has_change_permission(request):
            raise PermissionDenied
        action = request.POST.get("action")
        if action not in _WORDS:
            raise InvalidTask(f"action={action!r}: one of {', '.join(_WORDS)}")
        if not ids:
            messages.warning(request, "Select the tasks first.")
        for id in ids:
            change = _run(action, id)
            done = change in {Change.DUE_NOW, Change.FORGOTTEN}
            if done:
                self.log_change(request, RedisTask(id=id), _WORDS[action])
            level = messages.SUCCESS if done else messages.WARNING
            messages.add_message(request, level, f"Task {id}: {change.value}")
        return HttpResponseRedirect(back)


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


def _run(action: str, id: str) -> Change:
    if action == RETRY:
        return _bridge().run_now(id)
    [change] = _bridge().purge_failed([id])
    return change


def _actions(task: Task) -> list[tuple[str, str]]:
    """What can be done with a task in its state."""
    possible = [] if task.state is State.RUNNING else [RETRY]
    if task.state is State.FAILED:
        possible.append(FORGET)
    return [(name, _WORDS[name]) for name in possible]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
