"""Says which keyword a public function takes instead of one that it does not take."""

import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypeVar, Unpack, get_args, get_origin

T = TypeVar("T", bound=Callable[..., Any])

_INSTEAD = {
    "attempts": ("retry=, such as [15, '1m', '1h'], or Exponential(attempts=4)",),
    "base": ("factor=",),
    "broker": ("url=",),
    "callback": ("then=",),
    "concurrency": ("limit=, such as Limit(5)",),
    "connection": ("client=", "url="),
    "count": ("most=",),
    "countdown": ("delay=, in seconds or as '15m'", "after=, in seconds or as '15m'", "by="),
    "crontab": ("cron=, such as '0 9 * * *'",),
    "data": ("payload=",),
    "database": ("url=, such as redis://localhost:6379/1",),
    "db": ("url=, such as redis://localhost:6379/1",),
    "deduplicate": ("id= and if_exists=",),
    "delay": ("after=", "by=", "ttl=", "every="),
    "duration": ("after=", "by=", "delay="),
    "eta": ("at=, an aware datetime",),
    "expires": ("late_after= and misfire='skip'",),
    "for_": ("after=",),
    "function": ("func=",),
    "handler": ("func=",),
    "host": ("url=, such as redis://localhost:6379/1",),
    "interval": ("every=",),
    "job_id": ("id=",),
    "key": ("per=, the name of a parameter", "id="),
    "keys": ("ids=",),
    "link": ("then=",),
    "max": ("most=", "longest="),
    "max_attempts": (
        "attempts=",
        "retry=, such as [15, '1m', '1h'], or Exponential(attempts=4)",
        "times=",
    ),
    "max_concurrency": ("limit=, such as Limit(5)",),
    "max_delay": ("longest=",),
    "max_instances": ("overlap=",),
    "max_retries": (
        "retry=, such as [15, '1m', '1h'], or Exponential(attempts=4)",
        "attempts=",
        "times=",
    ),
    "minutes": ("after=, such as '15m'", "every=, such as '15m'", "delay=, such as '15m'"),
    "misfire_grace_time": ("late_after= and misfire=",),
    "on_event": ("on_signal=",),
    "on_success": ("then=, or return Then(...) in the handler", "then="),
    "password": ("url=, such as redis://:password@localhost:6379/1",),
    "period": ("every=",),
    "port": ("url=, such as redis://localhost:6379/1",),
    "rate_limit": ("rate=, such as Rate(100, '1m')",),
    "redis": ("client=", "url="),
    "replace_existing": ("if_exists='replace'",),
    "retries": (
        "retry=, such as [15, '1m', '1h'], or Exponential(attempts=4)",
        "attempts=",
        "times=",
    ),
    "seconds": ("after=", "every=", "delay=", "by=", "over="),
    "sender": ("by=",),
    "status": ("state=",),
    "task_id": ("id=",),
    "time_limit": ("timeout=",),
    "timezone": ("tz=",),
    "ttl": ("timeout=", "delay="),
    "when": ("at=", "delay=", "after="),
}
"""Keywords of other libraries, and those here; the first is meant that the function has."""

_NOT_HERE = {
    "on_signal": "what comes again, or is put off by beats, waits for no signal: make a task of "
    "its own, make_task(..., on_signal=)",
    "priority": "there is one alone, urgent=True, of make_task and @handler",
    "urgent": "mark the handler: @handler(urgent=True)",
    "queue": "there are no queues: each listener runs the functions that it has, or those of "
    "`listen --functions`: docs/how-to/organize-handlers.md",
}
"""What most functions do not take, or none."""

_EXAMPLES = {
    "Budget": "Budget(200_000, '1m', of='tokens')",
    "Busy": "Busy('30s')",
    "Discard": "Discard('the order was cancelled')",
    "Limit": "Limit(5, per='customer')",
    "Rate": "Rate(100, '1m')",
    "Retry": "Retry('15m')",
    "Snooze": "Snooze('15m')",
    "Spread": "Spread(over='10m')",
    "Then": "Then('mail.send', [42])",
    "every": "@every('15m')",
    "make_task": "make_task('mail.send', [42], '15m')",
    "schedule": "schedule('cleanup', 'files.clean', cron='@daily')",
    "watch": "watch('backup', 'alerts.silent', ['backup'], ttl='25h')",
}
"""A call of each function of which one argument may be forgotten."""

_DEFAULTS = {"tags": (), "if_exists": "reject", "private": False, "urgent": False}
"""Those of options that are unpacked, and are not None."""

_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")
_PLACES = re.compile(r"multiple values for argument|positional arguments? but \d+ w")


def advising(thing: T) -> T:
    """Have a function, or the class whose instances users make, say which keywords it takes.

    A call that does not fit raises TypeError, as it would without this, and says what to write.
    """
    if inspect.isclass(thing):
        made: Any = thing
        made.__init__ = _advised(made.__init__, thing.__name__)
        return thing
    return _advised(thing, thing.__name__)


def advising_methods(owner: type[Any]) -> None:
    """Have each public method of a class say which keywords it takes."""
    for name, method in list(vars(owner).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(owner, name, _advised(method, name))


def _advised(function: T, name: str) -> T:
    taken = _spell_out(function)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if unknown := [one for one in kwargs if one not in taken] if taken else ():
            error = TypeError(f"{name}() got an unexpected keyword argument {unknown[0]!r}")
            raise misnamed(error, function, name)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if not is_of_the_call(error):
                raise
            raise misnamed(error, function, name) from None

    return called  # type: ignore[return-value]


def _spell_out(function: Any) -> Collection[str]:
    """Have the signature of a function with `**options: Unpack[...]` name each option.

    Returns all that it takes then; nothing if it takes no options.
    """
    unpacked = [one for one in function.__annotations__.values() if get_origin(one) is Unpack]
    if not unpacked:
        return ()
    signature = inspect.signature(function)
    *others, last = signature.parameters.values()
    keywords = [
        inspect.Parameter(
            name, last.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=annotation
        )
        for name, annotation in inspect.get_annotations(*get_args(unpacked[0])).items()
    ]
    spelled = signature.replace(parameters=[*others, *keywords])
    function.__signature__ = spelled
    return spelled.parameters.keys()


def is_of_the_call(error: TypeError) -> bool:
    """True if the call did not fit, in the frame that handles this; else it was raised inside."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def misnamed(error: TypeError, function: Callable[..., Any], name: str) -> TypeError:
    """The error of a call that does not fit, under the name that users know, with advice."""
    reason = str(error).replace(f"{function.__qualname__}()", f"{name}()", 1)
    if " missing " in reason and name in _EXAMPLES:
        return TypeError(f"{reason}; such as {_EXAMPLES[name]}")
    return TypeError(f"{reason}{advice_on(error, function)}")


def advice_on(error: Exception, *functions: Callable[..., Any]) -> str:
    """What to write in a call that does not fit, as the end of a sentence; empty if unknown.

    The functions are those which share the keywords of the call.
    """
    taken = [
        one.name
        for function in functions
        for one in inspect.signature(function).parameters.values()
        if one.kind in {one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY} and one.name != "self"
    ]
    if unknown := _UNKNOWN.search(str(error)):
        return f"; {_for_keyword(unknown[1], taken)}"
    if not _PLACES.search(str(error)):
        return ""
    if {"func", "args"} <= {*taken}:
        return "; the handler's arguments are one list: make_task('mail.send', [42, 'hi'], '15m')"
    return f"; give by name: {_listed(taken)}" if taken else ""


def _for_keyword(name: str, taken: list[str]) -> str:
    """What to write instead of the keyword `name`, of those that are taken."""
    for ours in _INSTEAD.get(name, ()):
        if ours.partition("=")[0] in taken:
            return f"use {ours}"
    if name in _NOT_HERE:
        return _NOT_HERE[name]
    import difflib  # noqa: PLC0415 - only for a mistake

    if near := difflib.get_close_matches(name, taken, n=2):
        return f"did you mean {' or '.join(f'{one}=' for one in near)}?"
    if "kwargs" in taken:
        return f"an argument of the handler goes into kwargs={{'{name}': ...}}"
    return f"it takes {_listed(taken)}" if taken else "it takes none"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name}=" for name in names)
