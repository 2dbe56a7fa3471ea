"""The registry: which functions may run, found once at the start and looked up ever after.

Whoever can write to Redis can write any function's name, so a name is only ever looked up, never
imported or resolved. What can run is decided by the files under the handlers' folder: every public
function that is defined there, and nothing that is merely imported.
"""

import difflib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar, overload

from expirebridge.durations import Duration, seconds_of
from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers.loading import Function, functions_in
from expirebridge.hooks import Hook, Lifespan, Role, role_of
from expirebridge.misfire import MisfirePolicy, MisfireSpec, misfire_policy_of
from expirebridge.retry import RetryPolicy, RetrySpec, policy_of
from expirebridge.wire import check_func

logger = logging.getLogger("expirebridge")

F = TypeVar("F", bound=Function)

_POLICY = "__expirebridge_policy__"


@dataclass(frozen=True, slots=True)
class _Policy:
    retry: RetryPolicy | None
    timeout: float | None
    misfire: MisfirePolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """One function that tasks may name."""

    name: str
    function: Function
    is_async: bool
    retry: RetryPolicy | None
    """Its own retry policy; None: the default."""
    timeout: float | None
    """How many seconds it may run; None: the default."""
    misfire: MisfirePolicy | None
    """What is done with its tasks that are found late; None: they run."""

    @classmethod
    def of(cls, name: str, function: Function) -> Self:
        """Describe a function, with the policy that `@handler` gave it.

        Raises HandlersError for a generator function, which would never run.
        """
        if _is_generator(function):
            raise HandlersError(
                f"{_place(name, function)} is a generator function, which no handler can be: a "
                "call would not run it. Drop its yield, or @handler if it only helps others"
            )
        policy: _Policy = getattr(function, _POLICY, _Policy(None, None, None))
        return cls(
            name=name,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            retry=policy.retry,
            timeout=policy.timeout,
            misfire=policy.misfire,
        )


@overload
def handler(function: F, /) -> F: ...
@overload
def handler(
    *,
    retry: RetrySpec | None = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: MisfireSpec | None = None,
) -> Callable[[F], F]: ...
def handler(
    function: F | None = None,
    /,
    *,
    retry: RetrySpec | None = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: MisfireSpec | None = None,
) -> F | Callable[[F], F]:
    """Give a handler a policy of its own. Handlers without one need no decorator.

    `retry` is a list of delays, `[]` for a single attempt, or `Exponential(...)`; `timeout` is how
    long it may run; `late_after` and `misfire` are what is done with a task that is found too late,
    as in `make_task`. What a task says for itself goes before. Raises InvalidTask for values that
    cannot be.
    """
    policy = _Policy(
        policy_of(retry), check_timeout(timeout), misfire_policy_of(late_after, misfire)
    )

    def mark(marked: F) -> F:
        setattr(marked, _POLICY, policy)
        return marked

    return mark if function is None else mark(function)


def check_timeout(timeout: Duration | None) -> float | None:
    """Return a timeout in seconds; raise InvalidTask unless it is above 0."""
    if timeout is None:
        return None
    seconds = seconds_of(timeout, name="timeout")
    if seconds <= 0:
        raise InvalidTask(f"timeout={timeout!r}: it must be above 0")
    return seconds


class Registry:
    """The handlers by name; with the hooks and lifespans that stand beside them."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        hooks: Sequence[Hook] = (),
        lifespans: Sequence[Lifespan] = (),
    ) -> None:
        self._handlers = dict(handlers)
        self.hooks = tuple(hooks)
        self.lifespans = tuple(lifespans)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Import every module under `folder` and take its public functions.

        What no task can name, and generators that are not marked as handlers, are left out with
        a warning: a public function may just be there to help others.

        Raises HandlersError if the folder is missing or cannot be a package's name, if a module
        fails to import (the message then holds the file's name and the traceback), or if
        `@handler` marks a generator.
        """
        handlers: dict[str, Handler] = {}
        hooks: list[Hook] = []
        lifespans: list[Lifespan] = []
        for name, function in functions_in(folder):
            match role_of(function):
                case Role.HOOK:
                    hooks.append(function)
                case Role.LIFESPAN:
                    lifespans.append(_checked_lifespan(name, function))
                case None if _can_be_handler(name, function):
                    handlers[name] = Handler.of(name, function)
        return cls(handlers, hooks=hooks, lifespans=lifespans)

    def find(self, name: str) -> Handler | None:
        """Return the handler of exactly this name, or None."""
        return self._handlers.get(name)

    def suggest(self, name: str) -> str:
        """What may have been meant by a name that is not there, as a half sentence; or nothing."""
        near = difflib.get_close_matches(name, self._handlers, n=1)
        return f" (did you mean {near[0]!r}?)" if near else ""

    def __iter__(self) -> Iterator[Handler]:
        return iter(sorted(self._handlers.values(), key=lambda handler: handler.name))

    def __len__(self) -> int:
        return len(self._handlers)


def name_of(function: Function, folder: Path) -> str:
    """Return the name under which `function` is registered when `folder` is loaded.

    Raises InvalidTask when it is not a public function defined in a module there.
    """
    source = getattr(inspect.getmodule(function), "__file__", None)
    name = getattr(function, "__qualname__", repr(function))
    if not inspect.isfunction(function) or source is None:
        raise InvalidTask(f"func={name}: give a function defined in a module, or its name")
    if "." in name:
        raise InvalidTask(f"func={name}: only functions of a module's top level are handlers")
    try:
        module = Path(source).resolve().relative_to(folder.resolve()).with_suffix("")
    except ValueError:
        raise InvalidTask(
            f"func={name}: {source} is not under the handlers' folder {folder.resolve()}; "
            "set EXPIREBRIDGE_TASKS or Bridge(tasks=...), or give the name"
        ) from None
    if any(part.startswith("_") for part in (*module.parts, name)):
        raise InvalidTask(f"func={name}: only public functions of public modules are handlers")
    return check_func(f"{module.as_posix()}.{name}")


def check_binding(function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise InvalidTask unless the function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise InvalidTask(f"{function.__name__}{inspect.signature(function)}: {error}") from None


def _can_be_handler(name: str, function: Function) -> bool:
    """Whether to register it; if not, say why. A mistake in what is marked is for `Handler.of`."""
    try:
        check_func(name)
    except InvalidTask as error:
        logger.warning("no task can name %s: not registered; %s", _place(name, function), error)
        return False
    if _is_generator(function) and not hasattr(function, _POLICY):
        logger.warning(
            "%s is a generator function, which no handler can be; if it only helps others, begin "
            "its name with an underscore, and if it is a lifespan, mark it: not registered",
            _place(name, function),
        )
        return False
    return True


def _is_generator(function: Function) -> bool:
    return inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function)


def _place(name: str, function: Function) -> str:
    code = function.__code__
    return f"{name} ({code.co_filename}, line {code.co_firstlineno})"


def _checked_lifespan(name: str, function: Function) -> Lifespan:
    if not inspect.isasyncgenfunction(function) or inspect.signature(function).parameters:
        raise HandlersError(
            f"{name}: @lifespan marks an async generator function without parameters"
        )
    return function
