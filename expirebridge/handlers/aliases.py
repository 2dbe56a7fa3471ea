"""Aliases: former names of handlers, under which tasks may still be waiting."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from expirebridge.errors import HandlersError, InvalidTask
from expirebridge.handlers.definition import Handler
from expirebridge.handlers.module_list import ModuleList
from expirebridge.settings import HandlersPlace
from expirebridge.task.keys import check_func

RENAMES = "ALIASES"
"""The variable of the handlers' package that maps old names of modules and functions to new."""


@dataclass(frozen=True, slots=True)
class Alias:
    """A former name of a handler."""

    name: str
    handler: str
    """The present name of the handler."""
    location: str
    """The place of its declaration, for messages."""


def owners_of_aliases(handlers: Mapping[str, Handler], renames: Iterable[Alias]) -> dict[str, str]:
    """The present name of the handler for each alias; `renames` are beside those they declare.

    Raises HandlersError if an alias is the name of a handler, or belongs to two handlers.
    """
    taken: dict[str, Alias] = {}
    for alias in (*declared_aliases(handlers), *renames):
        if owner := handlers.get(alias.name):
            raise HandlersError(
                f"{alias.location}: the alias {alias.name!r} of {alias.handler} is the name of a "
                f"handler: {owner.location}. Remove one of them"
            )
        first = taken.setdefault(alias.name, alias)
        # A function that its module holds under two names declares its aliases for both.
        if handlers[first.handler].function is not handlers[alias.handler].function:
            raise HandlersError(
                f"{alias.location}: the alias {alias.name!r} of {alias.handler} is also an alias "
                f"of {first.handler}: {first.location}. Remove one of them"
            )
    return {alias.name: alias.handler for alias in taken.values()}


def declared_aliases(handlers: Mapping[str, Handler]) -> Iterator[Alias]:
    """The aliases on the handlers themselves."""
    for handler in handlers.values():
        for name in handler.aliases:
            yield Alias(name, handler.name, handler.location)


def renames_in(package: ModuleType, handlers: Mapping[str, Handler]) -> list[Alias]:
    """The aliases that follow from `ALIASES` in the package of the handlers.

    It maps the old name of a function to its present name, or the old name of a module to its
    present name: then each function there, and each alias of one, has an alias with the old module.
    Raises HandlersError for anything else, and for a present name that is not there.
    """
    if RENAMES not in vars(package):
        return []
    renames, location = vars(package)[RENAMES], f"{RENAMES} in {package.__file__}"
    if not isinstance(renames, Mapping):
        raise HandlersError(
            f"{location} is a {type(renames).__name__}: it must be a dict of old names to present "
            "ones"
        )
    for old, new in renames.items():
        _check_rename(old, new, renames, location)
    functions = [
        _function_alias(old, new, f"{location}, {old!r}: {new!r}", handlers)
        for old, new in renames.items()
        if "." in new
    ]
    known = {name: name for name in handlers}
    known |= {alias.name: alias.handler for alias in (*declared_aliases(handlers), *functions)}
    modules = [
        alias
        for old, new in renames.items()
        if "." not in new
        for alias in _module_aliases(old, new, f"{location}, {old!r}: {new!r}", known)
    ]
    return functions + modules


def _check_rename(
    old: object, new: object, renames: Mapping[object, object], location: str
) -> None:
    at = f"{location}, {old!r}: {new!r}"
    if not isinstance(old, str) or not isinstance(new, str) or ("." in old) != ("." in new):
        raise HandlersError(
            f"{at}: give two names of functions, such as 'mail.send', or two of modules, such as "
            "'mail' or 'shop/mail'"
        )
    if new in renames:
        raise HandlersError(f"{at}: {new!r} is itself an old name: give the present one")


def _function_alias(old: str, new: str, location: str, handlers: Mapping[str, Handler]) -> Alias:
    if new not in handlers:
        raise HandlersError(f"{location}: there is no handler {new!r}{_hint(new, handlers)}")
    return Alias(_checked(old, location), new, location)


def _module_aliases(old: str, new: str, location: str, known: Mapping[str, str]) -> list[Alias]:
    """An alias for each name of the present module; `known` maps names to those of handlers."""
    modules = {handler.rpartition(".")[0] for handler in known.values()}
    if new not in modules:
        raise HandlersError(f"{location}: no handler is in a module {new!r}{_hint(new, modules)}")
    functions = {
        name.rpartition(".")[2]: handler
        for name, handler in known.items()
        if name.rpartition(".")[0] == new
    }
    return [
        Alias(_checked(f"{old}.{function}", location), handler, location)
        for function, handler in functions.items()
    ]


def _checked(name: str, location: str) -> str:
    try:
        return check_func(name)
    except InvalidTask as error:
        raise HandlersError(f"{location}: {error}") from None


def _hint(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


# The name that may have been meant.


def suggestion(name: str, known: Iterable[str]) -> str:
    """Suggest known names for an unknown one, as a half sentence; empty without a match."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def inner_name(dotted: str, place: HandlersPlace) -> str | None:
    """The name of a handler by what Python calls it, `tasks.mail.send`; None if it has none.

    What leads to the handlers' folder is no part of the name.
    """
    if isinstance(place, str):
        module, _, function = dotted.rpartition(".")
        name = ModuleList.at(place).names.get(module)
        return None if name is None else f"{name}.{function}"
    parts = dotted.split(".")
    above = place.parts
    for count in range(min(len(above), len(parts)), 0, -1):
        if tuple(parts[:count]) == above[-count:]:
            parts = parts[count:]
            break
    *modules, function = parts
    if not modules or not all(part.isidentifier() and part.isascii() for part in parts):
        return None
    return f"{'/'.join(modules)}.{function}"
