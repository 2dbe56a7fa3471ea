"""`HANDLERS` in a module: the functions of it that tasks may name, and no others."""

import difflib
import inspect
from types import ModuleType

from expirebridge.errors import HandlersError
from expirebridge.hooks import role_of

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
    value = vars(module)[name]
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
