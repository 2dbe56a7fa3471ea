"""Fixtures of the fault tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.faults.stage import ROUNDS, copy_handlers
from tests.kit.databases import SQLITE, Database, binary_of, database_of
from tests.kit.history import Writer
from tests.kit.servers import FEW, SERVERS


@pytest.fixture(params=FEW if ROUNDS > 1 else FEW[:1])
def binary(request: pytest.FixtureRequest) -> Path:
    """For a test that starts a server of its own: two kinds in turn, and for want of time only the
    first, as a rule the embedded one, where a single round is asked for.
    """
    return SERVERS[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder; what listeners write beside it stays with the test."""
    return copy_handlers(tmp_path / "tasks")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[Writer]:
    """This test's history; the handlers' processes write theirs beside it."""
    writer = Writer(tmp_path / "history")
    yield writer
    writer.close()


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Database]]:
    """Gives the database server of a name, started once. Killed, it keeps what was committed."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("databases")
        yield cache(lambda name: stack.enter_context(database_of(name, folder, durable=True)))


@pytest.fixture
def database(name: str, databases: Callable[[str], Database]) -> Database:
    """The database server of which a test's parameter is the name."""
    if name != SQLITE and binary_of(name) is None:
        pytest.skip(f"needs {name}")
    return databases(name)
