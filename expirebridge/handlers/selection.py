"""Chooses the functions of a module that tasks may name, and its hooks and lifespans."""

import difflib
import inspect
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, ModuleType
from typing import Any

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers.call_signature import unclear
from expirebridge.handlers.definition import Function, Handler, is_generator, is_marked, location_of
from expirebridge.handlers.loading import HandlersModule
from expirebridge.handlers.source_code import decorated_in
from expirebridge.hooks import Hook, Lifespan, Role, role_of
from expirebridge.task import framework
from expirebridge.task.keys import check_func

# `HANDLERS` in a module: the functions of it that tasks may name, and no others.

LISTED = "HANDLERS"
"""The variable of a module that lists its handlers."""


def listed_in(module: ModuleType) -> list[str] | None:
    """The names of the functions that the module lists; None if it lists none.

    A function is listed as itself, or by its name. Raises HandlersError for anything else, and for
    what is no public function that is defined in this module.
    """
    if LISTED not in vars(module):
        return None
    entries = vars(module)[LISTED]
    if not isinstance(entries, list | tuple):
        raise HandlersError(
            f"{LISTED} in {module.__file__} is a {type(entries).__name__}: it must be a list of "
            "functions of this module, or of their names"
        )
    names = [_name_of_entry(module, entry) for entry in entries]
    for name in names:
        if fault := _fault_of(module, name):
            raise HandlersError(f"{LISTED} in {module.__file__}: {name} {fault}")
    return list(dict.fromkeys(names))


def _name_of_entry(module: ModuleType, entry: object) -> str:
    """The name under which the module holds what is listed."""
    if isinstance(entry, str):
        return entry
    own = getattr(entry, "__name__", "")
    if own and vars(module).get(own) is entry:
        return str(own)
    for name, value in vars(module).items():
        if value is entry and not name.startswith("_"):
            return name
    raise HandlersError(
        f"{LISTED} in {module.__file__}: {entry!r} is not in this module: give functions of this "
        "module, or their names"
    )


def _fault_of(module: ModuleType, name: str) -> str:
    """Why no task can name this, as the end of a sentence; nothing if one can."""
    if name not in vars(module):
        near = difflib.get_close_matches(name, list(vars(module)), n=1)
        return "is not in this module" + (f" (did you mean {near[0]}?)" if near else "")
    value = _function_or_value(name, vars(module)[name])
    if name.startswith("_"):
        return "begins with an underscore: only public functions are handlers"
    if not inspect.isfunction(value):
        kind = "class" if inspect.isclass(value) else f"value of type {type(value).__name__}"
        return f"is a {kind}, not a function"
    if value.__module__ != module.__name__:
        return (
            f"is a function of {value.__module__}: list it there (if it is decorated, use "
            "functools.wraps in the decorator)"
        )
    if role := role_of(value):
        return f"is a {role}, which no task can name"
    return ""


logger = logging.getLogger("expirebridge")


@dataclass(frozen=True, slots=True)
class Selection:
    """The contribution of a module to the registry."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    """By the names that tasks give them."""
    hooks: list[Hook] = field(default_factory=list)
    lifespans: list[Lifespan] = field(default_factory=list)


def select(module: HandlersModule, *, only_marked: bool = False) -> Selection:
    """Take the functions that HANDLERS lists; without it, the public ones that are defined there.

    With `only_marked`, a module without HANDLERS gives only those that `@handler` marks; so it does
    if the project has a function for one of its values, such as a Task of Django, which says what
    is to be called there. What can be no handler is named in the log, unless it was not asked for.

    Raises HandlersError if HANDLERS is not a list of handlers, if `@handler` marks a generator or a
    class, `@lifespan` what is no lifespan, or `@hook` what is no plain function.
    """
    selection = Selection()
    listed = listed_in(module.imported)
    only_marked = only_marked or _names_its_handlers(module.imported)
    for function_name, function in _public_functions(module):
        name = f"{module.name}.{function_name}"
        match role_of(function):
            case Role.HOOK:
                selection.hooks.append(_checked_hook(name, function))
            case Role.LIFESPAN:
                selection.lifespans.append(_checked_lifespan(name, function))
            case None if listed is not None:
                if function_name in listed:
                    selection.handlers[name] = _listed_handler(name, function)
            case None if only_marked and not is_marked(function):
                pass
            case None if _can_be_handler(name, function):
                selection.handlers[name] = Handler.of(name, function)
    _name_classes(module, quietly=only_marked or listed is not None)
    if listed is None:
        _name_hidden(module, only_marked=only_marked)
    _name_unclear(selection.handlers.values())
    return selection


_MARKING = {"handler", "every"}


def _name_hidden(module: HandlersModule, *, only_marked: bool) -> None:
    """Log the public functions that a decorator has put something else in the place of."""
    for name, line, decorators in decorated_in(module.imported.__file__ or ""):
        held = vars(module.imported)
        if name.startswith("_") or name not in held or (only_marked and not decorators & _MARKING):
            continue
        value = _function_or_value(name, held[name])
        if not inspect.isfunction(value):
            found = "None" if value is None else f"a {type(value).__name__}"
        elif value.__module__ != module.imported.__name__:
            found = f"a function of {value.__module__}"
        else:
            continue
        logger.warning(
            "%s.%s (%s, line %s) is no handler: its decorator returns %s; use functools.wraps in "
            "the decorator, or, if it only helps others, begin its name with an underscore: not "
            "registered",
            module.name, name, module.imported.__file__, line, found,
        )  # fmt: skip


def refuse_lost_marks(modules: Iterable[ModuleType], handlers: Iterable[Handler]) -> None:
    """Raise HandlersError if `@handler` marks a function of these modules that is not public.

    A module that has HANDLERS may leave out what it marks.
    """
    registered = {one.function for one in handlers}
    for module in modules:
        for name, value in list(vars(module).items()):
            if not inspect.isfunction(value) or value.__module__ != module.__name__:
                continue
            if is_marked(value) and value not in registered and LISTED not in vars(module):
                raise HandlersError(
                    f"{location_of(name, value)}: @handler marks it, but it is not a handler: only "
                    "a public function of a public module is one, whose name has no underscore at "
                    "its begin"
                )


def _name_unclear(handlers: Iterable[Handler]) -> None:
    """Log the handlers whose arguments nobody can check."""
    for one in handlers:
        if fault := unclear(one.function):
            logger.warning(
                "%s: %s; the arguments of its tasks are not checked", one.location, fault
            )


def _name_classes(module: HandlersModule, *, quietly: bool) -> None:
    """Log the public classes, which somebody may take for handlers; refuse marked ones."""
    for name, value in _public_things(module):
        if not inspect.isclass(value):
            continue
        if is_marked(value):
            raise HandlersError(
                f"{module.name}.{name} ({module.imported.__file__}) is a class, which no handler "
                "can be: mark a function with @handler"
            )
        if not quietly and not issubclass(value, BaseException):
            logger.warning(
                "%s.%s (%s) is a class, which no handler can be; if it only helps others, begin "
                "its name with an underscore, or list the handlers of its module in HANDLERS: not "
                "registered",
                module.name, name, module.imported.__file__,
            )  # fmt: skip


def _public_functions(module: HandlersModule) -> Iterator[tuple[str, Function]]:
    for name, value in _public_things(module):
        if inspect.isfunction(value):
            yield name, value


def _public_things(module: HandlersModule) -> Iterator[tuple[str, Any]]:
    """Each public function and class that is defined in the module, by its name there."""
    for name, held in vars(module.imported).items():
        value = _function_or_value(name, held)
        if name.startswith("_") or not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        if value.__module__ == module.imported.__name__:
            yield name, value


def _names_its_handlers(module: ModuleType) -> bool:
    """True if the module defines a value that stands for a handler."""
    functions = (framework.function_for(name, held) for name, held in vars(module).items())
    return any(one is not None and one.__module__ == module.__name__ for one in functions)


def beside_tasks(module: ModuleType, name: str) -> str:
    """Why this function of a module is no handler, if that is because of the Tasks beside it."""
    value = vars(module).get(name)
    if not inspect.isfunction(value) or value.__module__ != module.__name__ or is_marked(value):
        return ""
    if LISTED in vars(module) or not _names_its_handlers(module):
        return ""
    return (
        "its module defines a Task of Django, and beside Tasks only what @handler marks is a "
        f"handler: mark {name} with it, or move it into a module without Tasks"
    )


def _function_or_value(name: str, held: object) -> Any:
    """What a module holds; for a value that stands for a handler, its function."""
    return framework.function_for(name, held) or held


def _listed_handler(name: str, function: Function) -> Handler:
    try:
        check_func(name)
    except InvalidTask as error:
        raise HandlersError(
            f"HANDLERS: no task can name {location_of(name, function)}: {error}"
        ) from None
    return Handler.of(name, function, listed=True)


def _can_be_handler(name: str, function: Function) -> bool:
    """Return True if it can be a handler; log why not. `Handler.of` reports marked generators."""
    try:
        check_func(name)
    except InvalidTask as error:
        logger.warning(
            "no task can name %s: not registered; %s", location_of(name, function), error
        )
        return False
    if is_generator(function) and not is_marked(function):
        logger.warning(
            "%s is a generator function, which no handler can be; if it only helps others, begin "
            "its name with an underscore, and if it is a lifespan, mark it: not registered",
            location_of(name, function),
        )
        return False
    return True


def _checked_hook(name: str, function: Function) -> Hook:
    if inspect.iscoroutinefunction(function) or is_generator(function):
        raise HandlersError(
            f"{location_of(name, function)}: @hook marks a plain function: nobody awaits what this "
            "one returns, or loops over it, so it would do nothing"
        )
    return function


def _checked_lifespan(name: str, function: Function) -> Lifespan:
    if not inspect.isasyncgenfunction(function) or inspect.signature(function).parameters:
        raise HandlersError(
            f"{name}: @lifespan marks an async generator function without parameters"
        )
    return function


# What handlers that nobody declared may really be: decorators, lambdas and other helpers.

LAMBDA = "<lambda>"


def helper_kind(handler: Handler) -> str:
    """Guess what a function is that is no handler: a hint for people, never a rule."""
    function = handler.function
    _, _, name = handler.name.rpartition(".")
    if function.__name__ == LAMBDA:
        return "lambda"
    if function.__name__ != name:
        return f"second name of {function.__name__}"
    if "<locals>" in function.__qualname__:
        return "inner function"
    if _wraps_its_argument(function.__code__):
        return "decorator"
    return "function"


def _wraps_its_argument(code: CodeType) -> bool:
    """True if an inner function uses the first argument, as in a decorator."""
    return bool(code.co_argcount) and code.co_varnames[0] in code.co_cellvars
