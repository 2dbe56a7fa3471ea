"""Names of a module that are imported from others when they are first used.

So a process that only makes tasks starts without what a listener, a series or a hook needs. Such a
module says which name is where twice, and a test compares them: in imports, for type checkers, and
in `_NAMES`, for `names_of`.
"""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping
from types import ModuleType


def names_of(name: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of the module `name`.

    `names` has for each module of the package `expirebridge` the names that are there.
    """
    importing = sys.modules[name]
    modules = {one: module for module, listed in names.items() for one in listed.split()}

    def find(wanted: str) -> object:
        if wanted not in modules:
            raise AttributeError(f"module {name!r} has no attribute {wanted!r}")
        owner = importlib.import_module(f"expirebridge.{modules[wanted]}")
        value: object = getattr(owner, wanted)
        setattr(importing, wanted, value)
        return value

    return find


def modules_of(package: str, names: Collection[str]) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package, of which these modules are imported when used."""

    def find(wanted: str) -> ModuleType:
        if wanted not in names:
            raise AttributeError(f"module {package!r} has no attribute {wanted!r}")
        return importlib.import_module(f"{package}.{wanted}")

    return find


def load_all(*modules: ModuleType) -> None:
    """Import all names of such modules now, for a process in which waiting would be worse later."""
    for module in modules:
        for name in module.__all__:
            getattr(module, name)
