"""The decorator `@handler`, composed of what the spine and the limits take.

It names a capability, as `bridge` does: so type checkers and editors show all its arguments.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import overload

from expirebridge.handlers.definition import F, mark, marks_of
from expirebridge.limits.bound_limits import binding_of
from expirebridge.limits.values import Limit, Pace
from expirebridge.task.durations import Duration
from expirebridge.task.keywords import advising
from expirebridge.task.policies import MisfireSpec, RetrySpec


@overload
def handler(function: F, /) -> F: ...
@overload
def handler(
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
    limit: Limit | Sequence[Limit] | None = None,
    rate: Pace | Sequence[Pace] | None = None,
) -> Callable[[F], F]: ...
@advising
def handler(
    function: F | None = None,
    /,
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
    limit: Limit | Sequence[Limit] | None = None,
    rate: Pace | Sequence[Pace] | None = None,
) -> F | Callable[[F], F]:
    """Mark a function as a handler, and give it a policy of its own.

    Handlers need no decorator, unless a listener takes only marked ones (`listen --only-marked`).

    `retry` is a list of delays, `[]` for a single attempt, or `Exponential(...)`; `timeout` is how
    long it may run; `late_after` and `misfire` are what is done with a task that is found too late,
    as in `make_task`. What a task says for itself goes before. `late` is its objective: 99 % of its
    tasks are to begin at most so late, and metrics and `expirebridge stats` show how well that is
    kept; it changes no task. `aliases` are former names, such as
    `["mail.send_old"]`: tasks that were made with one run this function.

    With `typed`, pydantic compares each argument with its annotation, where the task is made with
    the function itself, and where it runs: with a UUID, datetime, Decimal, Enum, dataclass or
    model, what is stored is JSON, and the handler receives the value again. Arguments without an
    annotation, or with `Any`, stay as they are. It needs `expirebridge[typed]`.

    With `process`, a listener calls this plain function in a process of its own, which it kills at
    the timeout. A crash there fails that attempt alone. A new process imports the function by its
    name: it must be defined in its module itself, with `def`.

    With `private`, the arguments of its tasks are never in the name of a key, if they are made with
    the function itself; with its name, give `make_task(..., private=True)`.

    With `urgent`, its tasks are taken before others that are due, whoever makes them, as with
    `make_task(..., urgent=True)`. A listener declares it when it starts: it is for tasks that are
    made from then on.

    `limit` is how many of its tasks run at once, such as `Limit(5, per="customer")`, or a list of
    two; `rate` is how many start in a time, such as `Rate(100, "1m")`, how much they spend, such as
    `Budget(200_000, "1m", of="tokens")`, or a list of up to three.

    Raises InvalidTask for values that cannot be, and for what is no function, such as a
    `functools.partial`: no task could name it.
    """
    marks = marks_of(
        retry=retry, timeout=timeout, late_after=late_after, misfire=misfire, late=late,
        aliases=aliases, typed=typed, process=process, private=private, urgent=urgent,
        bind_limits=binding_of(limit, rate),
    )  # fmt: skip
    return partial(mark, marks=marks) if function is None else mark(function, marks)
