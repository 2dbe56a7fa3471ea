"""The capabilities, and what each gives to the rest of the package.

A capability has a folder of its own. What it gives stands there in a module of a known name, such
as `explain`: who needs that asks here, and imports no capability itself.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

CAPABILITIES = (
    "limits",
    "groups",
    "series",
    "signals",
    "urgent",
    "sealing",
    "fleet",
    "foreign",
    "lateness",
    "moving",
    "ledger",
)


@cache
def given(role: str) -> tuple[ModuleType, ...]:
    """Return the modules of this name, in the order of the capabilities that have one."""
    names = (f"expirebridge.{one}.{role}" for one in CAPABILITIES)
    return tuple(import_module(name) for name in names if find_spec(name))
