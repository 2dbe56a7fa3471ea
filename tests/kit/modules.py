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


def _is_under(folder: Path, module: ModuleType) -> bool:
    places = [getattr(module, "__file__", None), *(getattr(module, "__path__", None) or ())]
    return any(place and Path(place).is_relative_to(folder) for place in places)
