"""Checks and encodes the tasks that producers ask for, before anything is sent."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from expirebridge import handlers
from expirebridge.errors import InvalidTask
from expirebridge.handlers.call import Call
from expirebridge.settings import HandlersPlace, Settings
from expirebridge.task import framework, keys
from expirebridge.task.argument_writer import ArgumentWriter
from expirebridge.task.calls import call, producing
from expirebridge.task.calls.call import CHUNK_BYTES, Argument, KnownPartitions, When
from expirebridge.task.durations import Duration, check_aware, human, seconds_of
from expirebridge.task.keywords import advice_on
from expirebridge.task.task import to_ms

if TYPE_CHECKING:
    from expirebridge.task.policies import MisfireSpec, RetrySpec

Named = str | Callable[..., Any]
Func = Named | Call

CHUNK_TASKS = call.CHUNK_TASKS
"""The most tasks in one request of `make_tasks`."""

LONGEST_WINDOW = Settings.keep_succeeded
"""How many seconds a succeeded task is kept, with the default settings of listeners."""

_IF_EXISTS = get_args(producing.IfExists)


def new_task(
    place: HandlersPlace,
    writer: ArgumentWriter,
    /,
    func: Func,
    args: Sequence[Any] = (),
    delay: Duration | None = None,
    kwargs: Mapping[str, Any] | None = None,
    at: datetime | None = None,
    id: str | None = None,
    if_exists: str = "reject",
    max_wait: Duration | None = None,
    window: Duration | None = None,
    tags: Sequence[str] = (),
    retry: "RetrySpec | None" = None,
    timeout: Duration | None = None,
    late_after: Duration | None = None,
    misfire: "MisfireSpec | None" = None,
    private: bool = False,
    on_signal: Named | None = None,
    urgent: bool = False,
) -> producing.NewTask:
    """Check the arguments of `make_task`; `place` is that of the handlers.

    The arguments are JSON; once the id is final, `writer` writes them. Raises InvalidTask.
    """
    if if_exists not in _IF_EXISTS:
        raise InvalidTask(f"if_exists={if_exists!r}: one of {', '.join(_IF_EXISTS)}")
    name, encoded = call_of(place, func, args, kwargs, limited=not writer.takes_large)
    fields: dict[str, Argument] = {}
    if on_signal is not None:
        first = name, encoded
        fields["on_signal"] = _second_function(place, first, func, args, kwargs, on_signal)
        private = private or is_private(on_signal)
    if len(encoded) > keys.MAX_ARGS_IN_KEY or writer.seals or is_private(func, private):
        fields["args"] = encoded
        encoded = keys.IN_RECORD
    if urgent is not False:
        fields |= _urgent(urgent)
    if max_wait is not None:
        fields["max_wait"] = _limit(max_wait, delay, id, if_exists)
    if window is not None:
        fields["window"] = _window(window, id, if_exists)
    if if_exists != "reject" and id is None:
        raise InvalidTask(
            f"if_exists={if_exists!r}: it requires an id; without one each call makes another task"
        )
    if not (tags == () and retry is timeout is late_after is misfire is None):
        from expirebridge.task.policies import policy_fields  # noqa: PLC0415 - rarely needed

        fields |= policy_fields(
            tags=tags, retry=retry, timeout=timeout, late_after=late_after, misfire=misfire
        )
    return producing.NewTask(
        id=keys.check_id(id) if id is not None else random_id(),
        has_random_id=id is None,
        if_exists=if_exists,
        call=name.encode() + b"?" + encoded,
        when=when_of(delay, at),
        fields=fields,
    )


def is_private(func: Func, private: object = False) -> bool:
    """True if the arguments must not be in a key's name, by the call or by the handler's mark."""
    if not isinstance(private, bool):
        raise InvalidTask(f"private={private!r}: True or False")
    given = func.function if isinstance(func, Call) else func
    return private or (not isinstance(given, str) and handlers.is_private(given))


def _urgent(urgent: object) -> dict[str, Argument]:
    if not isinstance(urgent, bool):
        raise InvalidTask(f"urgent={urgent!r}: True or False")
    return {"urgent": 1}


def random_id() -> str:
    """Return a unique id: 128 random bits."""
    return os.urandom(16).hex()


def with_available_id(task: producing.NewTask, partitions: KnownPartitions) -> producing.NewTask:
    """Return a task with a random id under an id of an available partition.

    The same task if its id was given, its partition is available, or none is.
    """
    unavailable = partitions.unavailable
    if not unavailable or not task.has_random_id or len(unavailable) >= partitions.layout.count:
        return task
    while partitions.layout.partition_of(task.id) in unavailable:
        task = task._replace(id=random_id())
    return task


def call_of(
    place: HandlersPlace,
    func: Func,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    limited: bool = True,
) -> tuple[str, bytes]:
    """Return the name of a handler and its arguments as JSON. Raises InvalidTask.

    They may have at most 64 KiB if they are `limited` to that.
    """
    func, args, kwargs = _parts(func, args, kwargs)
    name = name_of(func, place)
    if isinstance(func, str):
        if isinstance(place, str):  # a folder's modules need not be imported for a name
            handlers.refuse_left_out(name, place)
        return name, keys.encode_args(args, kwargs, limited=limited)
    handlers.check_binding(func, args, kwargs or {})
    plain = handlers.plain_arguments(func, args, kwargs)
    return name, keys.encode_args(*plain, limited=limited)


def name_of(func: Named, place: HandlersPlace) -> str:
    """Return the name of a handler, which may be given by its name. Raises InvalidTask."""
    if isinstance(func, str):
        return _checked_name(func, place)
    if not callable(func):
        raise _no_handler(func, place)
    return handlers.name_of(func, place)


def _checked_name(name: str, place: HandlersPlace) -> str:
    """Return a valid name of a handler unchanged. Raises InvalidTask, with what may be meant."""
    try:
        return keys.check_func(name)
    except InvalidTask as error:
        from expirebridge.handlers.aliases import inner_name  # noqa: PLC0415 - for few tasks

        meant = inner_name(name, place)
        if meant is None:
            raise
        raise InvalidTask(f"{error} (did you mean {meant!r}?)") from None


def _no_handler(given: object, place: HandlersPlace) -> InvalidTask:
    """For what is no function. It may be what came of calling one, or a Task of Django."""
    own = getattr(getattr(given, "func", None), "__name__", "")
    if own and (function := framework.function_for(own, given)):
        name = handlers.name_of(function, place)
        return InvalidTask(
            f"func={own}: it is a Task of Django: use {own}.enqueue(...), or give its name, "
            f"{name!r}"
        )
    shown = f"{given!r:.60}"
    if inspect.iscoroutine(given):
        shown = f"{given.__name__}(...)"
        given.close()  # nobody will await it
    return InvalidTask(
        f"func={shown}: give a handler, or its name 'module.function'. A handler is given without "
        "parentheses: make_task(send, [17], ...), not make_task(send(17), ...)"
    )


def checked(
    place: HandlersPlace, writer: ArgumentWriter, position: int, item: Mapping[str, Any]
) -> producing.NewTask:
    """Check one of many tasks. An error names its position."""
    if not isinstance(item, (dict, Mapping)):
        raise InvalidTask(f"task {position}: give a mapping of make_task's arguments")
    try:
        return new_task(place, writer, **item)
    except (InvalidTask, TypeError) as error:
        reason = str(error).replace("new_task() ", "")
        raise InvalidTask(f"task {position}: {reason}{advice_on(error, new_task)}") from error


def refuse_repeated_ids(tasks: Iterable[producing.NewTask]) -> None:
    """Raise InvalidTask if two of many tasks have one id."""
    seen: dict[str, int] = {}
    for position, task in enumerate(tasks):
        if task.id in seen:
            raise InvalidTask(
                f"task {position}: id {task.id!r} is also the id of task {seen[task.id]}"
            )
        seen[task.id] = position


def chunks(tasks: Sequence[producing.NewTask]) -> Iterable[list[producing.NewTask]]:
    """Divide the tasks into requests."""
    chunk: list[producing.NewTask] = []
    size = 0
    for task in tasks:
        weight = len(task.call)
        if task.fields:
            weight += sum(len(str(value)) for value in task.fields.values())
        if chunk and (len(chunk) == CHUNK_TASKS or size + weight > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(task)
        size += weight
    if chunk:
        yield chunk


def when_of(delay: Duration | None, at: datetime | None) -> When:
    """The due time that was asked for. Raises InvalidTask unless exactly one of both is given."""
    if (delay is None) == (at is None):
        raise InvalidTask("give either delay or at" + (", not both" if at is not None else ""))
    if delay is not None:
        return When(round(seconds_of(delay, name="delay") * 1000), relative=True)
    return When(max(to_ms(check_aware(at, name="at")), 0), relative=False)


def _second_function(
    place: HandlersPlace,
    first: tuple[str, bytes],
    func: Func,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    on_signal: Named,
) -> str:
    """The name of the function that a signal runs, with the task's own arguments.

    `first` is the name of the other one, and the arguments as JSON. Raises InvalidTask if it cannot
    take them.
    """
    _, args, kwargs = _parts(func, args, kwargs)
    if isinstance(on_signal, Call):
        raise InvalidTask(
            "on_signal: give a handler, or its name: it gets the arguments of the task itself"
        )
    if isinstance(on_signal, str):  # nothing is known of what it takes
        args, kwargs = (), None
    try:
        name, encoded = call_of(place, on_signal, args, kwargs, limited=False)
    except InvalidTask as error:
        told = str(error)
        place_of_it = "on_signal=" if told.startswith("func=") else "on_signal: "
        raise InvalidTask(place_of_it + told.removeprefix("func=")) from None
    if name == first[0]:
        raise InvalidTask(
            f"on_signal={name!r}: it is the function that runs at the deadline; give another one. "
            "To run a task earlier, call run_now"
        )
    if not isinstance(on_signal, str) and encoded != first[1]:
        raise InvalidTask(
            f"on_signal={name!r}: its annotations write these arguments as other JSON than those "
            f"of {first[0]!r}, and both get the same: annotate the parameters of both alike"
        )
    return name


def _parts(
    func: Func, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> tuple[Named, Sequence[Any], Mapping[str, Any] | None]:
    """The function, or its name, and its arguments. Raises InvalidTask if both places have some."""
    if not isinstance(func, Call):
        return func, args, kwargs
    if args not in ((), []) or kwargs:  # args is the delay, if that was given without its name
        raise InvalidTask(
            "args, kwargs: a Call has its arguments already. Give the delay by its name: "
            "make_task(Call(rate, 17), delay='72h')"
        )
    return func.function, func.args, func.kwargs


def _limit(max_wait: Duration, delay: Duration | None, id: str | None, if_exists: str) -> int:
    """`max_wait` in ms, checked together with the arguments that it requires."""
    longest = seconds_of(max_wait, name="max_wait")
    if if_exists not in {"extend", "replace"}:
        raise InvalidTask(
            f"max_wait={max_wait!r}: it limits if_exists='extend' and 'replace', not {if_exists!r}"
        )
    if id is None:
        raise InvalidTask(
            f"max_wait={max_wait!r}: it requires an id, or the task cannot be put off again"
        )
    if delay is None:
        raise InvalidTask(f"max_wait={max_wait!r}: it requires delay, not at")
    if longest < seconds_of(delay, name="delay"):
        raise InvalidTask(f"max_wait={max_wait!r}: it is shorter than delay={delay!r}")
    return round(longest * 1000)


def _window(window: Duration, id: str | None, if_exists: str) -> int:
    """`window` in ms, checked together with the arguments that it requires."""
    seconds = seconds_of(window, name="window")
    if seconds < 0.001:
        raise InvalidTask(f"window={window!r}: it must be at least a millisecond")
    if seconds > LONGEST_WINDOW:
        raise InvalidTask(
            f"window={window!r}: at most {human(LONGEST_WINDOW)}, since a finished task is "
            "forgotten after that"
        )
    if if_exists != "keep":
        raise InvalidTask(f"window={window!r}: it requires if_exists='keep', not {if_exists!r}")
    if id is None:
        raise InvalidTask(f"window={window!r}: it requires an id, which identifies earlier runs")
    return round(seconds * 1000)
