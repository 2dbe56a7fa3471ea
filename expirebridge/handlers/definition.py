"""A handler: a function that tasks may name, and what `@handler` says of it."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeVar

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.task.durations import Duration
from expirebridge.task.framework import surrounded
from expirebridge.task.keys import check_func
from expirebridge.task.policies import (
    MisfirePolicy,
    MisfireSpec,
    RetryPolicy,
    RetrySpec,
    check_late,
    check_timeout,
    misfire_policy_of,
    policy_of,
)

if TYPE_CHECKING:
    from expirebridge.handlers.typed import TypedArguments

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

_MARKS = "__expirebridge_handler__"


BindLimits = Callable[[Function, str], tuple[Any, ...]]
"""Binds limits to a function and the name of its handler. Raises InvalidTask if they do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What `@handler` says of a function."""

    retry: RetryPolicy | None = None
    timeout: float | None = None
    misfire: MisfirePolicy | None = None
    late: float | None = None
    aliases: tuple[str, ...] = ()
    typed: bool = False
    process: bool = False
    private: bool = False
    urgent: bool = False
    bind_limits: BindLimits | None = None


class Kind(StrEnum):
    """The place in which a handler is called: event loop, thread or process."""

    ASYNC = "async"  # on the event loop
    THREAD = "thread"
    PROCESS = "process"  # in a process of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One function that tasks may name."""

    name: str
    function: Function
    call: Function
    """The callable for a task's arguments as JSON holds them: the function, for a typed handler
    one that converts them before, with what the project does around each call."""
    is_async: bool
    retry: RetryPolicy | None
    """Its own retry policy; None: the default."""
    timeout: float | None
    """How many seconds it may run; None: the default."""
    misfire: MisfirePolicy | None
    """The policy for tasks that are found late; None: they run."""
    late: float | None = None
    """Its objective: how many seconds late its tasks may begin; None: it has none."""
    aliases: tuple[str, ...] = ()
    """Its former names, under which tasks may also call it."""
    in_process: bool = False
    """True if it is called in a process of its own."""
    limits: tuple[Any, ...] = ()
    """Its limits and its rate: see `limits_on`."""
    urgent: bool = False
    """True if its tasks are taken before others that are due."""
    is_declared: bool = False
    """True if `@handler` or HANDLERS marks it."""

    @property
    def kind(self) -> Kind:
        """The place in which it is called."""
        if self.is_async:
            return Kind.ASYNC
        return Kind.PROCESS if self.in_process else Kind.THREAD

    @property
    def module(self) -> str:
        """The name under which its module is imported."""
        return self.function.__module__

    @classmethod
    def of(cls, name: str, function: Function, *, listed: bool = False) -> Self:
        """Describe a function, with what `@handler` says; `listed`: its module's HANDLERS names it.

        Raises HandlersError for a generator function, which would never run, for a typed one whose
        annotations cannot be used, or without pydantic; for one with `process=True` that is async,
        or that a new process cannot import by its name; and for a limit whose `per` is no argument
        that can choose a lane.
        """
        if is_generator(function):
            raise HandlersError(
                f"{location_of(name, function)} is a generator function, which no handler can be: "
                "a call would not run it. Drop its yield; or @handler, or its place in HANDLERS, "
                "if it only helps others"
            )
        marks: Marks = getattr(function, _MARKS, Marks())
        typed = typed_arguments(function)
        if marks.process and (fault := _fault_in_process(function)):
            raise HandlersError(f"{location_of(name, function)}: process=True: {fault}")
        try:
            limits = () if marks.bind_limits is None else marks.bind_limits(function, name)
        except InvalidTask as error:
            raise HandlersError(f"{location_of(name, function)}: {error}") from None
        call = function if typed is None else typed.reading(function)
        is_async = inspect.iscoroutinefunction(function)
        return cls(
            name=name,
            function=function,
            call=surrounded(call, is_async=is_async),
            is_async=is_async,
            retry=marks.retry,
            timeout=marks.timeout,
            misfire=marks.misfire,
            late=marks.late,
            aliases=marks.aliases,
            in_process=marks.process,
            limits=limits,
            urgent=marks.urgent,
            is_declared=listed or is_marked(function),
        )

    @property
    def location(self) -> str:
        """Its name, with the file and the line where it is defined."""
        return location_of(self.name, self.function)

    @property
    def source(self) -> str:
        """The file and the line where it is defined, as `file:line`."""
        code = _innermost(self.function).__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


def typed_arguments(function: Function) -> "TypedArguments | None":
    """How the arguments of a typed handler are checked and converted; None if it is not typed.

    Raises HandlersError if its annotations cannot be used, or pydantic is not installed.
    """
    marks: Marks | None = getattr(function, _MARKS, None)
    return _typed_arguments(function) if marks is not None and marks.typed else None


@functools.cache
def _typed_arguments(function: Function) -> "TypedArguments":
    location = location_of(function.__name__, function)
    try:
        from expirebridge.handlers.typed import TypedArguments  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as missing:
        raise HandlersError(
            f"{location}: a typed handler needs {missing.name}: pip install 'expirebridge[typed]'"
        ) from None
    try:
        return TypedArguments.of(function)
    except HandlersError as error:
        raise HandlersError(f"{location}: a typed handler: {error}") from None


def marks_of(
    *,
    retry: RetrySpec | None = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: MisfireSpec | None = None,
    late: Duration | None = None,
    aliases: Sequence[str] = (),
    typed: bool = False,
    process: bool = False,
    private: bool = False,
    urgent: bool = False,
    bind_limits: BindLimits | None = None,
) -> Marks:
    """Check what `@handler` says of a function, and return it. Raises InvalidTask."""
    return Marks(
        retry=policy_of(retry),
        timeout=check_timeout(timeout),
        misfire=misfire_policy_of(late_after, misfire),
        late=check_late(late),
        aliases=_check_aliases(aliases),
        typed=_check_flag("typed", typed),
        process=_check_flag("process", process),
        private=_check_flag("private", private),
        urgent=_check_flag("urgent", urgent),
        bind_limits=bind_limits,
    )


def mark(marked: F, marks: Marks) -> F:
    """Mark a function as a handler. Raises InvalidTask for what is no function."""
    # A class is refused where handlers are chosen, which knows its name there.
    if not (inspect.isfunction(marked) or inspect.isclass(marked)):
        raise InvalidTask(f"@handler marks {marked!r}, which is not a function: write a def")
    setattr(marked, _MARKS, marks)
    return marked


def _check_aliases(aliases: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(aliases, list | tuple) or not all(isinstance(name, str) for name in aliases):
        raise InvalidTask(f"aliases={aliases!r}: give a list of names, such as ['mail.send_old']")
    try:
        return tuple(check_func(name) for name in dict.fromkeys(aliases))
    except InvalidTask as error:
        raise InvalidTask(f"aliases={aliases!r}: {error}") from None


def _check_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidTask(f"{name}={value!r}: True or False")
    return value


def _fault_in_process(function: Function) -> str:
    """Why the function cannot be called in a process of its own; nothing if it can."""
    if inspect.iscoroutinefunction(function):
        return (
            "it is async, and runs on the listener's event loop: make it a plain function, which "
            "may call asyncio.run, or drop process=True"
        )
    if function.__name__ == "<lambda>":
        return "it is a lambda, which a new process cannot import by its name: write a def"
    if "<locals>" in function.__qualname__:
        return (
            "it is defined inside of another function, and a new process cannot import it by its "
            "name: define it in the module itself (in a decorator, use functools.wraps)"
        )
    return ""


def with_retry(function: Function, default: RetryPolicy) -> RetryPolicy:
    """Mark a function as a handler with this policy, unless it has one; returns what it has."""
    marks: Marks = getattr(function, _MARKS, Marks())
    retry = default if marks.retry is None else marks.retry
    setattr(function, _MARKS, replace(marks, retry=retry))
    return retry


def is_private(function: Function) -> bool:
    """True if the arguments of its tasks must not be in the name of a key."""
    marks: Marks | None = getattr(function, _MARKS, None)
    return marks is not None and marks.private


def is_marked(thing: object) -> bool:
    """True if `@handler` marks the function or class itself, not only a base class."""
    return _MARKS in vars(thing)


def is_generator(function: Function) -> bool:
    """True if a call of the function does not run its body."""
    return inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)


def location_of(name: str, function: Function) -> str:
    """The name with the file and the line where the function is defined."""
    code = _innermost(function).__code__
    return f"{name} ({code.co_filename}, line {code.co_firstlineno})"


def _innermost(function: Function) -> Function:
    """The function that others wrap; a wrapper itself of what is none."""
    wrapped = getattr(function, "__wrapped__", None)
    met = {function}
    while inspect.isfunction(wrapped) and wrapped not in met:
        function = wrapped
        met.add(function)
        wrapped = getattr(function, "__wrapped__", None)
    return function
