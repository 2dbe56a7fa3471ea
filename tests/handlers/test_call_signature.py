"""The signature that counts is that of the call: what decorators take, pass on and add."""

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers import Handler, Registry, check_binding
from expirebridge.handlers.signatures import shape_of
from expirebridge.limits.bound_limits import KEYWORD_ONLY, bind_limits
from expirebridge.limits.values import Limit
from tests.kit.cases import each
from tests.kit.modules import forgotten, put

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
SESSION = "session"


# Decorators as they are written: what one takes need not be what it passes on.


def passing(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        logging.getLogger("test").debug("%s with %s %s", function.__name__, args, kwargs.keys())
        return function(*args, **kwargs)

    return call


def injecting_first(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(SESSION, *args, **kwargs)

    return call


def injecting_by_name(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, session=SESSION, **kwargs)

    return call


def with_parameters_of_its_own(function: Function) -> Function:
    @functools.wraps(function)
    def call(order: Any, count: int = 1) -> Any:
        return function(SESSION, order, count=count)

    return call


def positional_only(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


def by_name_only(function: Function) -> Function:
    @functools.wraps(function)
    def call(**kwargs: Any) -> Any:
        return function(**kwargs)

    return call


def through_a_partial(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return functools.partial(function, SESSION, *args, **kwargs)()

    return call


def through_another_name(function: Function) -> Function:
    other = function

    def inner(*args: Any, **kwargs: Any) -> Any:
        return other(*args, **kwargs)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return call


@contextlib.contextmanager
def in_a_context() -> Iterator[None]:
    """As `transaction.atomic` of Django is one, and a decorator."""
    yield


def twice(function: Function) -> Function:
    return passing(injecting_first(function))


def with_a_signature(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*[SESSION, *args], **kwargs)

    parameters = list(inspect.signature(function).parameters.values())[1:]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def above_a_signature(function: Function) -> Function:
    """`functools.wraps` copies a `__signature__`, which then is not that of the wrapper."""
    inner = with_a_signature(function)

    @functools.wraps(inner)
    def call(order: Any, *, count: int = 1) -> Any:
        return inner(order, count=count)

    return call


def changing_what_it_took(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["session"] = SESSION
        return function(*args, **kwargs)

    return call


def taking_one_away(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(SESSION, *args[1:], **kwargs)

    return call


def joining_lists(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*(SESSION, *args), **kwargs)

    return call


def never_calling(function: Function) -> Function:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any: ...

    return call


def generated(function: Function) -> Function:
    """There is no source to read."""
    made: dict[str, Any] = {"function": function}
    exec("def call(*args, **kwargs): return function('s', *args, **kwargs)", made)  # noqa: S102
    wrapper: Function = functools.wraps(function)(made["call"])
    return wrapper


KNOWN: list[Decorator] = [
    passing, injecting_first, injecting_by_name, with_parameters_of_its_own, positional_only,
    by_name_only, through_a_partial, through_another_name, twice, with_a_signature,
    above_a_signature, in_a_context(),
]  # fmt: skip
UNKNOWN: list[Decorator] = [
    changing_what_it_took, taking_one_away, joining_lists, never_calling, generated,
]  # fmt: skip


def plain(session: Any, order: Any, count: int = 1) -> str:
    return "ran"


def last(order: Any, session: Any, count: int = 1) -> str:
    return "ran"


def strict(session: Any, /, order: Any, *, count: int = 1) -> str:
    return "ran"


def open_ended(session: Any, *orders: Any, **counts: int) -> str:
    return "ran"


FUNCTIONS: list[Function] = [plain, last, strict, open_ended]


def calls() -> Iterator[tuple[tuple[int, ...], dict[str, int]]]:
    names = ("session", "order", "count", "other")
    chosen = [c for size in range(4) for c in combinations(names, size)]
    for positional, keywords in product(range(5), chosen):
        yield tuple(range(positional)), dict.fromkeys(keywords, 1)


def fits(function: Function, args: tuple[int, ...], kwargs: dict[str, int]) -> bool:
    try:
        check_binding(function, args, kwargs)
    except InvalidTask:
        return False
    return True


def can_be_called(function: Function, args: tuple[int, ...], kwargs: dict[str, int]) -> bool:
    try:
        function(*args, **kwargs)
    except TypeError:
        return False
    return True


@each("function", FUNCTIONS)
@each("decorator", KNOWN)
def test_arguments_fit_if_the_call_takes_them(decorator: Decorator, function: Function) -> None:
    """All small calls, each made in earnest: none that would run is refused, and none is taken that
    would not (but names that a function with `**kwargs` is given twice)."""
    decorated = decorator(function)
    made = [(call, can_be_called(decorated, *call), fits(decorated, *call)) for call in calls()]
    assert [call for call, runs, said in made if runs and not said] == []
    if function is not open_ended and any(runs for _, runs, _ in made):
        assert [call for call, runs, said in made if said and not runs] == []


@each("function", FUNCTIONS)
@each("decorator", UNKNOWN)
def test_where_it_cannot_be_known_nothing_is_refused(
    decorator: Decorator, function: Function
) -> None:
    assert shape_of(decorator(function)) == "(*args, **kwargs)"


# What follows from it: lanes, checks where tasks are made, a word where the folder is loaded.


def placed(function: Function) -> int:
    [bound] = bind_limits([Limit(1, per="order")], function, "mail.ship")
    assert bound.argument is not None
    return bound.argument.place


def test_lanes_are_chosen_by_the_argument_of_the_task() -> None:
    """With the index of the wrapped function all tasks of one lane would have several."""
    assert placed(plain) == 1
    for decorator in (injecting_first, with_parameters_of_its_own, through_a_partial, twice):
        assert placed(decorator(plain)) == 0
    assert placed(by_name_only(plain)) == KEYWORD_ONLY


@each("decorator", UNKNOWN)
def test_no_lane_is_chosen_by_guessing(decorator: Decorator) -> None:
    with pytest.raises(InvalidTask, match=r"^per='order': its decorator takes \(\*args"):
        placed(decorator(plain))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "called_"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


DECORATED = """
    import functools
    from expirebridge import Limit, handler
    def _with_session(function):
        @functools.wraps(function)
        def call(*args, **kwargs):
            {how}
        return call
    @handler({limit})
    @_with_session
    def ship(session, order): ...
    """
CLEAR = "return function('session', *args, **kwargs)"
UNCLEAR = "return function(*('session', *args), **kwargs)"


def test_what_cannot_be_known_is_said_when_the_folder_is_loaded(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clear = put(folder, "clear.py", DECORATED.format(how=CLEAR, limit=""))
    path = put(folder, "mail.py", DECORATED.format(how=UNCLEAR, limit=""))
    registry = Registry.load(folder)
    assert [one.name for one in registry] == ["clear.ship", "mail.ship"]
    [message] = caplog.messages
    assert message.startswith(f"mail.ship ({path}, line 9): its decorator takes (*args, **kwargs)")
    assert str(clear) not in message


def test_a_limit_that_would_have_to_guess_is_refused(folder: Path) -> None:
    put(folder, "mail.py", DECORATED.format(how=UNCLEAR, limit="limit=Limit(1, per='order')"))
    with pytest.raises(HandlersError, match=r"^mail\.ship .*per='order': its decorator takes"):
        Registry.load(folder)


def test_a_typed_handler_whose_arguments_nobody_can_know_is_refused(folder: Path) -> None:
    """Nothing would be converted, or compared."""
    put(folder, "clear.py", DECORATED.format(how=CLEAR, limit="typed=True"))
    Registry.load(folder)
    put(folder, "mail.py", DECORATED.format(how=UNCLEAR, limit="typed=True"))
    with pytest.raises(HandlersError, match=r"^ship .*: a typed handler: its decorator takes"):
        Registry.load(folder)


def test_a_wrapper_of_what_is_no_function_has_a_place() -> None:
    """`functools.wraps` takes anything, and a loop is no reason to fail a listener's start."""
    unclear = functools.wraps(print)(lambda *_: None)
    looped = never_calling(plain)
    looped.__wrapped__ = looped  # type: ignore[attr-defined]
    for function in (unclear, looped):
        assert __file__ in Handler.of("test.send", function).location
