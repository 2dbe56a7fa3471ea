"""A call: a handler with the arguments that a task is to give it."""

from collections.abc import Callable
from typing import Any, ParamSpec

P = ParamSpec("P")


class Call:
    """A handler with its arguments, which mypy and pyright compare with its parameters.

    `make_task(Call(rate, 17, urgent=True), delay="72h")` makes the same task as
    `make_task(rate, [17], "72h", kwargs={"urgent": True})`. It takes the place of `func`, `args`
    and `kwargs` in `make_task`, `make_tasks` and `watch`, for plain and async handlers alike.

    It runs nothing and raises nothing. What makes the task checks the arguments, as it does
    without a Call.
    """

    __slots__ = ("args", "function", "kwargs")

    def __init__(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
        self.function: Callable[..., Any] = function
        """The handler."""
        self.args = list(args)
        """Its positional arguments."""
        self.kwargs: dict[str, Any] = dict(kwargs)
        """Its keyword arguments."""
