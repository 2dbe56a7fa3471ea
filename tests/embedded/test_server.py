"""The embedded server, started, killed and started again."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import redis

from expirebridge import Bridge, EmbeddedServerError
from expirebridge.embedded import server as embedded
from expirebridge.embedded.resources import redis_conf
from expirebridge.embedded.server import HOST, EmbeddedServer, free_port
from tests.kit.invoked import run
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND
from tests.kit.servers import NAMES, SERVERS, server_of


@pytest.fixture(params=SERVERS)
def binary(request: pytest.FixtureRequest) -> Path:
    return SERVERS[request.param]


def test_a_free_port_is_given_to_one_alone() -> None:
    """Whoever draws a port starts its server later; many do so at the same time."""
    ports = [free_port() for _ in range(1000)]
    assert len(set(ports)) == len(ports)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, ports[0]))
    with pytest.raises(OSError, match="in use"):
        free_port(ports[0])
    with EmbeddedServer(port=ports[0]) as server:
        assert server.port == ports[0]


def test_it_keeps_its_tasks_over_a_crash(binary: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(binary=binary, directory=tmp_path, options={"appendfsync": "always"})
    server.start()
    with Bridge(server.url) as bridge:
        task = bridge.make_task("mail.send", [42], "24h")
    server.kill()
    server.start()
    with Bridge(server.url) as bridge:
        assert bridge.get(task.id) is not None
    server.stop()


@pytest.mark.parametrize("name", NAMES)
def test_the_configuration_loads_and_sets_what_it_says(name: str) -> None:
    with server_of(name) as server, redis.Redis(port=server.port) as client:
        wanted = {}
        for line in redis_conf().read_text().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.partition(" ")
                wanted[name] = value.strip('"')
        for name in ("appendonly", "appendfsync", "maxmemory-policy", "save",
                     "hash-max-ziplist-value", "tcp-keepalive"):  # fmt: skip
            assert client.config_get(name)[name] == wanted[name]
        flags = client.config_get("notify-keyspace-events")["notify-keyspace-events"]
        assert set(flags) == set("Exg")
        limits = client.config_get("client-output-buffer-limit")["client-output-buffer-limit"]
        assert "pubsub 67108864 16777216 60" in limits
        assert client.info("server")["tcp_port"] == server.port


def test_it_listens_on_this_machine_only(binary: Path) -> None:
    with EmbeddedServer(binary=binary) as server:
        sockets = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=False)
        ours = [
            line.split()[3] for line in sockets.stdout.splitlines() if f":{server.port}" in line
        ]
    assert set(ours) <= {f"{HOST}:{server.port}", f"[::1]:{server.port}"}


def test_a_second_server_on_its_port_is_refused_with_the_server_s_words(binary: Path) -> None:
    with EmbeddedServer(binary=binary) as first:
        second = EmbeddedServer(binary=binary, port=first.port)
        with pytest.raises(EmbeddedServerError, match=r"(?i)address already in use"):
            second.start()
        result = run("server", "--port", str(first.port), "--dir", second.directory)
        assert result.returncode == 1
        assert result.stderr.startswith("expirebridge: valkey-server did not start on port")
        assert result.stderr.count("\n") == 1
        assert first.pid is not None
        with redis.Redis(port=first.port) as client:
            assert client.ping()


def test_a_second_server_on_its_directory_is_refused_while_the_first_lives(binary: Path) -> None:
    """Two servers on one append-only file would overwrite each other's tasks."""
    with EmbeddedServer(binary=binary) as first:
        log = (first.directory / "server.log").read_bytes()
        second = EmbeddedServer(binary=binary, directory=first.directory)
        with pytest.raises(EmbeddedServerError, match="is in use by another server"):
            second.start()
        assert (first.directory / "server.log").read_bytes().startswith(log)
        first.kill()
        second.start()
        second.stop()


@pytest.mark.parametrize("place", ["a file", "no place"])
def test_a_directory_that_cannot_be_is_refused(tmp_path: Path, place: str) -> None:
    directory = tmp_path / "file" if place == "a file" else Path("/proc/nowhere")
    (tmp_path / "file").touch()
    result = run("server", "--dir", directory)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert str(directory) in result.stderr


def test_one_that_would_not_stop_is_killed_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_STOP_LIMIT", 0.0)
    server = EmbeddedServer()
    server.start()
    with redis.Redis(port=server.port) as client:
        process = client.info("server")["process_id"]
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(EmbeddedServerError, match="did not stop within 0 s, and was killed"):
        server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    shutil.rmtree(server.directory)


def test_the_command_runs_it_until_it_is_told_to_stop(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *COMMAND,
            "server",
            "--port",
            str(free_port()),
            "--dir",
            tmp_path / "data",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().split()[0]
    assert (tmp_path / "data" / ".gitignore").read_text().endswith("\n*\n")
    with Bridge(url) as bridge:
        bridge.make_task("mail.send", [42], "24h")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    with pytest.raises(redis.ConnectionError), redis.Redis.from_url(url) as client:
        client.ping()
