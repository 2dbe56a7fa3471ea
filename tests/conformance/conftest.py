"""One listener for all conformance tests on a server; each test has names of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import redis

from tests.conformance import clients
from tests.conformance.clients import Client
from tests.conformance.stage import Stage
from tests.kit.processes import run
from tests.kit.servers import EMBEDDED, SERVERS, AnyServer

# Clusters take their time, and do not differ from server to server: these tests are for the suite
# that has Valkey 9.1 and Redis 7.0.
collect_ignore = [] if EMBEDDED in SERVERS else ["test_cluster_clients.py"]

_numbers = count()
_databases = count(3)


def _version(port: int) -> tuple[int, ...]:
    with redis.Redis(port=port) as client:
        return tuple(map(int, client.info("server")["redis_version"].split(".")))


@pytest.fixture(scope="package")
def stage(shared_server: AnyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A database in which a listener hears key events."""
    with redis.Redis(port=shared_server.port) as client:
        client.flushall()
        client.config_set("notify-keyspace-events", "Exg")
    port = shared_server.port
    made = Stage(port, 1, tmp_path_factory.mktemp("stage"), _version(port))
    with made.listening():
        yield made


@pytest.fixture(scope="package")
def shas(stage: Stage) -> dict[str, str]:
    """Loads the functions; the digests of their scripts, as the command shows them."""
    loaded = run("functions", "load", url=stage.url)
    assert loaded.returncode == 0, loaded.stderr
    return {row["name"]: row["sha"] for row in stage.command("functions", "scripts")}


@pytest.fixture
def quiet(stage: Stage, tmp_path: Path) -> Stage:
    """Another database of the same server, in which no listener is up."""
    number = next(_databases)
    return Stage(stage.port, number, tmp_path / "quiet", stage.version)


@pytest.fixture
def plain(quiet: Stage) -> Iterator[Client]:
    """The barest client, in the database in which no listener is up."""
    made = clients.Raw(quiet.port, quiet.database)
    yield made
    made.close()


@pytest.fixture(scope="package", params=clients.NAMES)
def client(request: pytest.FixtureRequest, stage: Stage) -> Iterator[Client]:
    """Each client in turn."""
    made = clients.client(request.param, stage.port, stage.database)
    yield made
    made.close()


@pytest.fixture
def raw(stage: Stage) -> Iterator[Client]:
    """The barest client, where it does not matter which."""
    made = clients.Raw(stage.port, stage.database)
    yield made
    made.close()


@pytest.fixture
def name() -> str:
    """An id that no other test has."""
    return f"t{next(_numbers)}"
