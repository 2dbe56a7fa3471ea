"""Fixtures: a real server of each kind, clean for each test, and ways to talk to it."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path

import pytest
import redis.utils
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from expirebridge import AsyncBridge, Bridge
from expirebridge.connection import clients
from expirebridge.settings import VARIABLES, Settings
from expirebridge.store.client import AsyncStore, Store
from tests.kit.databases import SQLITE, Database, binary_of, database_of
from tests.kit.logs import Log
from tests.kit.processes import HANDLERS, Reports
from tests.kit.servers import AnyServer, server_of

pytest_plugins = [
    "tests.kit.cluster_fixtures",
    "tests.kit.doorbells",
    "tests.kit.garbage",
    "tests.kit.imports",
    "tests.kit.interrupts",
    "tests.kit.last_words",
    "tests.kit.matrix",
    "tests.kit.printing",
]

hypothesis_settings.register_profile(
    "ours",
    # `make machine` sets more.
    max_examples=int(os.environ.get("EXPIREBRIDGE_EXAMPLES", "40")),
    # A machine that is busy with something else must not fail a test of what is right.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def no_variables() -> Iterator[None]:
    """Neither tests nor the processes that they start find settings of whoever runs them, or the
    variables of this suite, which a command would warn of. Modules have read theirs by now."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(VARIABLES):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session", autouse=True)
def sighup_as_usual() -> None:
    """Processes inherit that a signal is ignored, as SIGHUP is under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def version_read_once() -> Iterator[None]:
    """redis-py reads its own version, for each client, from the metadata of its package: as long as
    a test of one script takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis.utils, "get_lib_version", cache(redis.utils.get_lib_version))
        yield


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    """A test is like a new process: it has asked no listeners what they know."""
    if fleet := sys.modules.get("expirebridge.fleet.operations"):  # it can be taken out
        fleet.asked_of.clear()


@pytest.fixture(scope="session")
def shared_server(request: pytest.FixtureRequest) -> Iterator[AnyServer]:
    """One server of each kind for the whole session."""
    with server_of(request.param) as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """One SQL database server of each kind for the whole session."""
    name = request.param
    if name != SQLITE and binary_of(name) is None:
        pytest.skip(f"needs {name}")
    with database_of(name, tmp_path_factory.mktemp("databases")) as database:
        yield database


@pytest.fixture
def server(shared_server: AnyServer) -> AnyServer:
    """A server, emptied and with its settings as in redis.conf."""
    with redis.Redis(port=shared_server.port) as client, client.pipeline(transaction=False) as pipe:
        pipe.flushall()
        pipe.config_set("notify-keyspace-events", "Exg")
        pipe.config_set("maxmemory", 0)
        pipe.config_set("maxmemory-policy", "noeviction")
        pipe.function_flush()
        *answers, _ = pipe.execute(raise_on_error=False)  # Redis 6.2 has no functions
    assert answers == [True] * len(answers)
    return shared_server


@pytest.fixture
def url(server: AnyServer) -> str:
    return server.url


@pytest.fixture
def client(url: str) -> Iterator[redis.Redis]:
    """A plain client: the stand-in for any program in any language."""
    with redis.Redis.from_url(url) as plain:
        yield plain


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store(clients.producer_client(url), prefix="expirebridge")
    yield store
    store.close()


@pytest.fixture
async def async_store(url: str) -> AsyncIterator[AsyncStore]:
    store = AsyncStore(clients.async_producer_client(url), prefix="expirebridge")
    yield store
    await store.aclose()


@pytest.fixture
def settings(url: str) -> Settings:
    return Settings(url=url)


@pytest.fixture
def bridge(url: str) -> Iterator[Bridge]:
    with Bridge(url) as bridge:
        yield bridge


@pytest.fixture
async def async_bridge(url: str) -> AsyncIterator[AsyncBridge]:
    async with AsyncBridge(url) as bridge:
        yield bridge


@pytest.fixture
def reports(server: AnyServer) -> Iterator[Reports]:
    """What handlers in other processes report."""
    reports = Reports(server.port)
    yield reports
    reports.client.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder with handlers that report."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "acts.py").write_text(HANDLERS)
    return folder


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    """What listeners in this process log."""
    return Log(caplog)
