"""Everything over TLS, against a server that takes nothing else from the network."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import trustme

from expirebridge import AsyncBridge, Bridge, InvalidSetting, ServerUnreachable, State
from expirebridge.embedded.server import HOST, EmbeddedServer, free_port
from expirebridge.settings import Settings
from tests.kit import processes
from tests.kit.invoked import run
from tests.kit.new_connections import FAST
from tests.kit.patience import PATIENCE
from tests.kit.processes import ROOT
from tests.kit.sentinels import Sentinels
from tests.kit.tls import needed, tls_server, write_authority, write_leaf
from tests.kit.witness import Witness, listening


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates of a server, of a client, of their CA and of another CA."""
    folder = tmp_path_factory.mktemp("keys")
    authority = write_authority(folder)
    trustme.CA().cert_pem.write_to_path(folder / "other.pem")
    write_leaf(authority, folder, "localhost")
    write_leaf(authority, folder, "me@example.org", name="client")
    return folder


@pytest.fixture(scope="module")
def tls_url(keys: Path) -> Iterator[str]:
    with tls_server(keys) as url:
        yield url


async def test_producers_a_listener_and_the_command_work(tls_url: str, keys: Path) -> None:
    url = f"{tls_url}?ssl_ca_certs={keys}/ca.pem"
    witness = Witness()

    async def note() -> None: ...

    async with listening(Settings(url=url), witness, note=note), AsyncBridge(url) as bridge:
        made = await bridge.make_task("test.note", [], 0.02)
        with Bridge(url) as waits:
            waits.make_task("test.note", [], 0.02)
        await witness.until_ended(2)
        found = await bridge.get(made.id)
    assert found is not None
    assert found.state is State.SUCCEEDED
    shown = run("count", url=url)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "succeeded  2" in shown.stdout
    examined = run("doctor", url=url)
    assert (examined.returncode, examined.stderr) == (0, "")
    assert "ok       round trip" in examined.stdout


@pytest.mark.parametrize(
    ("words", "query"),
    [
        (["count"], ""),
        (["doctor"], "?ssl_ca_certs={keys}/other.pem"),
        pytest.param(
            ["listen", "--tasks", "tasks"],
            "?ssl_ca_certs={keys}/other.pem",
            marks=pytest.mark.rest,  # a process: it becomes a listener first
        ),
    ],
)
def test_a_certificate_that_is_not_trusted_is_told_of_in_one_line(
    tls_url: str, keys: Path, words: list[str], query: str
) -> None:
    run_it = processes.run if words[0] == "listen" else run
    result = run_it(*words, url=tls_url + query.format(keys=keys))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("expirebridge: no TLS connection to the server: ")
    assert "CERTIFICATE_VERIFY_FAILED" in result.stderr
    assert "rediss://host:6379/1?ssl_ca_certs=/path/ca.pem" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("wrong", ["another host", "no certificate"])
async def test_both_colours_say_what_is_wrong(tls_url: str, keys: Path, wrong: str) -> None:
    if wrong == "another host":
        url = f"{tls_url.replace('localhost', '127.0.0.1')}?ssl_ca_certs={keys}/ca.pem"
    else:
        url = f"{tls_url}?ssl_ca_certs={keys}/server.key"
    with pytest.raises(ServerUnreachable, match="no TLS connection"), Bridge(url) as bridge:
        bridge.count()
    with pytest.raises(ServerUnreachable, match="no TLS connection"):
        async with AsyncBridge(url) as awaits:
            await awaits.count()


def test_a_server_that_asks_clients_for_a_certificate_takes_one(keys: Path) -> None:
    with tls_server(keys, clients_too=True) as tls_url:
        url = f"{tls_url}?ssl_ca_certs={keys}/ca.pem"
        own = f"&ssl_certfile={keys}/client.pem&ssl_keyfile={keys}/client.key"
        with Bridge(url + own) as known:
            assert known.count().pending == 0
        both = keys / "both.pem"
        both.write_text((keys / "client.pem").read_text() + (keys / "client.key").read_text())
        with Bridge(f"{url}&ssl_certfile={both}") as known:
            assert known.count().pending == 0
        # The server may only hang up.
        with pytest.raises(ServerUnreachable), Bridge(url) as unknown:
            unknown.count()


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_is_not_there_is_bad_input(name: str) -> None:
    url = f"rediss://me:secret@localhost/1?{name}=/nowhere.pem&ssl_password=hidden"
    with pytest.raises(InvalidSetting, match=f"{name}: there is no file /nowhere.pem") as caught:
        Bridge(url)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


@pytest.fixture
def tls_cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster whose nodes speak TLS, also among themselves."""
    write_leaf(write_authority(tmp_path), tmp_path, HOST)
    options = {
        "cluster-enabled": "yes",
        "databases": "1",
        "tls-cert-file": f"{tmp_path}/server.pem",
        "tls-key-file": f"{tmp_path}/server.key",
        "tls-ca-cert-file": f"{tmp_path}/ca.pem",
        "tls-auth-clients": "no",
        "tls-cluster": "yes",
    }
    with ExitStack() as stack:
        nodes = dict[int, EmbeddedServer]()
        buses = dict[int, int]()
        for _ in range(3):
            port, bus = free_port(), free_port()
            own = {"tls-port": str(port), "cluster-port": str(bus)}
            nodes[port] = stack.enter_context(
                EmbeddedServer(binary=needed(), options=options | own)
            )
            buses[port] = bus
        meet(nodes, buses)
        until_announced(list(nodes), tmp_path)
        yield f"rediss+cluster://127.0.0.1:{next(iter(nodes))}?ssl_ca_certs={tmp_path}/ca.pem"


def meet(nodes: dict[int, EmbeddedServer], buses: dict[int, int]) -> None:
    """Divide the slots among the nodes, and let them know one another."""
    first, *_ = nodes
    for number, node in enumerate(nodes.values()):
        with redis.Redis(host=HOST, port=node.port) as client:
            client.execute_command(
                "CLUSTER", "ADDSLOTSRANGE", number * 5462, min(number * 5462 + 5461, 16383)
            )
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "MEET", HOST, first, buses[first])


def until_announced(ports: list[int], keys: Path) -> None:
    """Wait until each node works, and tells clients with TLS the others' ports with TLS."""
    deadline = time.monotonic() + PATIENCE
    for port in ports:
        with redis.Redis(port=port, ssl=True, ssl_ca_certs=f"{keys}/ca.pem", host=HOST) as client:
            told, works = set[int](), False
            while told != set(ports) or not works:
                assert time.monotonic() < deadline, f"{told} is not {ports}"
                slots: Any = client.execute_command("CLUSTER", "SLOTS")
                told = {primary[1] for _, _, primary, *_ in slots}
                works = b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO")


@pytest.mark.rest
async def test_a_cluster_over_tls(tls_cluster: str) -> None:
    witness = Witness()

    async def note() -> None: ...

    settings = Settings(url=tls_cluster)
    async with AsyncBridge(tls_cluster) as bridge:
        await bridge.create_partitions(16)
        async with listening(settings, witness, note=note):
            made = [await bridge.make_task("test.note", [], 0.02) for _ in range(30)]
            await witness.until_ended(30)
        assert (await bridge.count()).succeeded == 30
    assert len({task.key.partition(b"}")[0] for task in made}) > 3  # on more than one node
    shown = run("count", url=tls_cluster)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "succeeded  30" in shown.stdout
    examined = run("doctor", url=tls_cluster)
    assert "ok       round trip" in examined.stdout
    assert examined.returncode == 0, examined.stdout


@pytest.fixture
def tls_sentinels(tmp_path: Path) -> Iterator[str]:
    """A primary whose sentinels speak TLS, too, and ask nobody for a password."""
    write_leaf(write_authority(tmp_path), tmp_path, HOST)
    with Sentinels(needed(), tls=tmp_path, password=None) as sentinels:
        yield sentinels.url


@pytest.fixture
def hiredis() -> dict[str, str]:
    """What processes need in their environment to read replies with hiredis."""
    if not any(FAST.glob("hiredis/*.so")):
        pytest.skip("needs hiredis beside the tests' environment: make test installs it there")
    return {"PYTHONPATH": f"{FAST}"}


def failed_connections(url: str, count: int, parser: dict[str, str]) -> dict[str, Any]:
    """Why new connections failed, by the client that opened them."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.kit.new_connections", url, str(count)],
        cwd=ROOT,
        env=os.environ | parser,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(result.stdout)
    assert told["hiredis"] is bool(parser)
    return {client: faults for client, faults in told["failed"].items() if faults}


@pytest.mark.rest
def test_every_new_connection_works(tls_url: str, keys: Path, hiredis: dict[str, str]) -> None:
    # Of database 0, without a login: there nothing is exchanged before the first command.
    url = f"{tls_url.removesuffix('1')}0?ssl_ca_certs={keys}/ca.pem"
    assert failed_connections(url, 30, hiredis) == {}
    assert failed_connections(url, 30, {}) == {}


@pytest.mark.rest
def test_every_new_connection_to_a_cluster_works(tls_cluster: str, hiredis: dict[str, str]) -> None:
    assert failed_connections(tls_cluster, 10, hiredis) == {}
    examined = processes.run("doctor", url=tls_cluster, **hiredis)
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert "ok       round trip" in examined.stdout


@pytest.mark.rest
def test_every_new_connection_to_sentinels_works(
    tls_sentinels: str, hiredis: dict[str, str]
) -> None:
    assert failed_connections(tls_sentinels, 10, hiredis) == {}
    examined = processes.run("doctor", url=tls_sentinels, **hiredis)
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert "3 of 3 sentinels name" in examined.stdout
