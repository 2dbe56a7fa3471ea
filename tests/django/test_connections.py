"""Database connections of Django around each attempt, in threads, on the loop and in processes."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, text

from tests.kit.databases import POSTGRESQL, Database, binary_of, database_of
from tests.kit.django_project import HANDLERS, DjangoProject

TASKS = (
    HANDLERS
    + """
from asgiref.sync import sync_to_async
from django.db import connection
from expirebridge import handler

def _backend():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return str(cursor.fetchone()[0])

def plain():
    _report(_backend())

async def awaited():
    _report(await sync_to_async(_backend)())

@handler(process=True)
def apart():
    _report(_backend())

def decorated(function):
    import functools
    return functools.wraps(function)(lambda: function())

@decorated
async def wrapped():
    _report(await sync_to_async(_backend)())
"""
)
NAMES = ["plain", "awaited", "apart", "wrapped"]


pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def server_of_databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """PostgreSQL, which can be asked which connections there are."""
    if binary_of(POSTGRESQL) is None:
        pytest.skip("needs postgresql")
    with database_of(POSTGRESQL, tmp_path_factory.mktemp("databases")) as database:
        yield database


@pytest.fixture
def postgresql(project: DjangoProject, server_of_databases: Database) -> URL:
    """The database of the project."""
    url = server_of_databases.new_database()
    project.databases["default"] = {
        "ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username,
        "HOST": url.host, "PORT": url.port,
    }  # fmt: skip
    project.write("shop/tasks.py", TASKS)
    return url


def backends(url: URL) -> set[str]:
    """The connections to the database beside that which asks."""
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND pid <> pg_backend_pid()"
            )
        )
        found = {str(row.pid) for row in rows}
    engine.dispose()
    return found


def kill(url: URL) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    engine.dispose()


def run(project: DjangoProject, name: str) -> str:
    """Run a task, which succeeds in its first attempt; return what it reported."""
    project.manage("expirebridge", "make", f"shop.{name}", "[]", "--in", "0s", "--id", name)
    reported = project.report()
    assert project.until_state(name, "succeeded").attempt == 1
    return reported


@pytest.mark.parametrize("name", NAMES)
def test_a_connection_is_closed_after_the_attempt(
    project: DjangoProject, postgresql: URL, name: str
) -> None:
    with project.listening("--concurrency", "1"):
        run(project, name)
        assert backends(postgresql) == set()


@pytest.mark.parametrize("name", ["plain", "apart"])
def test_one_that_may_stay_open_and_is_killed_fails_no_attempt(
    project: DjangoProject, postgresql: URL, name: str
) -> None:
    default: Any = project.databases["default"]
    default["CONN_MAX_AGE"] = None
    with project.listening("--concurrency", "1", "--processes", "1"):
        first = run(project, name)
        assert backends(postgresql) == {first}
        assert run(project, name) == first
        kill(postgresql)
        assert run(project, name) != first
