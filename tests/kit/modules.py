"""Modules that a test writes, imports and forgets."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from types import ModuleType


def put(folder: Path, file: str, source: str = "def send(): ...") -> Path:
    """Write a file into the folder, and return its path."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(source), encoding="utf-8")
    return path


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """After the block, forget the modules under the folder, and what was added to `sys.path`."""
    path = sys.path.copy()
    try:
        yield
    finally:
        sys.path[:] = path
        # All are found before one is removed: a namespace package asks its parent for its path.
        for name in [name for name, module in sys.modules.items() if _is_under(folder, module)]:
            del sys.modules[name]


@contextmanager
def as_if_new(folder: Path, package: str = "tasks") -> Iterator[None]:
    """During the block nothing of this name is imported, as in a new process; after it, nothing
    that is under the folder.

    A command that runs in this process imports a folder of handlers under its name; so may another
    test have done with another one.
    """
    others = [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]
    hidden = {name: sys.modules.pop(name) for name in others}
    try:
        with forgotten(folder):
            yield
    finally:
        sys.modules.update(hidden)


def _is_under(folder: Path, module: ModuleType) -> bool:
    places = [getattr(module, "__file__", None), *(getattr(module, "__path__", None) or ())]
    # As text: thousands of modules are asked.
    return any(f"{place}/".startswith(f"{folder}/") for place in places if place)
