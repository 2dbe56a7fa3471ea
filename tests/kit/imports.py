"""Workers of a parallel run (pytest-xdist) share the compiling of the tests.

Each worker collects all tests, in the same order. In a fresh clone each would compile every module,
at the same time as all others. Here each begins elsewhere, and finds the rest compiled.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


def pytest_collection(session: pytest.Session) -> None:
    """Import the modules of tests, this worker's share first."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if count == 1:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    modules = list(_modules(session))
    first = len(modules) * number // count
    for path in modules[first:] + modules[:first]:
        name = ".".join(path.relative_to(session.config.rootpath).with_suffix("").parts)
        # What cannot be imported is reported when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def _modules(session: pytest.Session) -> Iterator[Path]:
    """Those that will be collected."""
    for argument in session.config.args:
        place = (session.config.invocation_params.dir / argument.partition("::")[0]).resolve()
        for path in sorted(place.rglob("test_*.py")) if place.is_dir() else [place]:
            folder = path.parent
            ignored = session.gethookproxy(folder).pytest_ignore_collect(
                collection_path=folder, config=session.config
            )
            if not ignored:
                yield path
