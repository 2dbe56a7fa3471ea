"""What a handler returns to have a follow-up task made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from expirebridge.task.keywords import advising
from expirebridge.task.options import TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from expirebridge.handlers.call import Call
    from expirebridge.task.durations import Duration


@advising
class Then:
    """A task that is made exactly when the handler's own task has succeeded.

    `return Then(close, [order], "3d")` from a plain or an async handler, or from one in a process.
    The step that records the success makes the task: if the attempt fails, lapses or is cancelled,
    nothing is made, and whatever is sent again, it is made once. The arguments are those of
    `make_task`; without `delay` and `at` the task is due at once. Nothing is made before the
    handler has returned: what cannot be made, such as an unknown shape of arguments, fails the
    attempt, as an exception would.

    Without an `id` it has one that follows from this attempt. A task that runs again, by `run_now`
    or because it was put off while it ran, has another follow-up each time it succeeds.
    """

    __slots__ = ("func", "options")

    def __init__(
        self,
        func: "str | Callable[..., Any] | Call",
        args: Sequence[Any] = (),
        delay: "Duration | None" = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        self.func = func
        """The handler, its name, or a `Call`."""
        if delay is None and options.get("at") is None:
            delay = 0
        self.options: Mapping[str, Any] = {"args": args, "delay": delay, **options}
        """The other arguments of `make_task`."""

    def __repr__(self) -> str:
        given = self.func if isinstance(self.func, str) else getattr(self.func, "__name__", "...")
        return f"Then({given!r}, ...)"
