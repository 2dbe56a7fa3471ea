"""A primary with its replicas, and real sentinels that watch them and fail over."""

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from expirebridge.embedded.server import HOST, EmbeddedServer, embedded_binary, free_port
from tests.kit.patience import PATIENCE, until
from tests.kit.process_logs import noted
from tests.kit.servers import SERVERS

NAME = "mymaster"
LOGIN, PASSWORD = "app", "s3cret/1"
"""The login at primaries and replicas, which all clients but the sentinels use."""
WATCHER = "watcher"
"""The sentinels' login at primaries and replicas."""
SENTINEL_PASSWORD = "w0rd&2"
"""What the sentinels ask everybody for, unless a test wants it otherwise."""
DOWN_AFTER_MS = 400
URL_LOGIN = f"{LOGIN}:s3cret%2F1"
URL_SENTINEL_LOGIN = "sentinel_password=w0rd%262"
QUORUM = 2

BINARY = SERVERS.get("redis-7.0") or next(iter(SERVERS.values()), embedded_binary())
"""What the sentinels are: every redis-server and valkey-server can be one."""


class Sentinel:
    """One sentinel process."""

    def __init__(
        self, port: int, folder: Path, lines: list[str], *, tls: bool, password: str | None
    ) -> None:
        self.port = port
        self._password = password
        self._file = folder / f"sentinel-{port}.conf"
        listens = f"tls-port {port}\nport 0" if tls else f"port {port}"
        self._file.write_text("\n".join([listens, f"bind {HOST}", f"dir {folder}", *lines]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self._tls: dict[str, Any] = {"ssl": True, "ssl_cert_reqs": "none"} if tls else {}

    def start(self) -> None:
        """Start it, with what it knew before, and wait until it answers."""
        with noted(self._file.with_suffix(".log")).open("ab") as output:
            self._process = subprocess.Popen(
                [BINARY, self._file, "--sentinel"], stdout=output, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(redis.ConnectionError):
                self.ask("PING")
                return
            runs = self._process.poll() is None and time.monotonic() < deadline
            assert runs, self.log
            time.sleep(0.01)

    @property
    def log(self) -> str:
        """What it logged."""
        return self._file.with_suffix(".log").read_text()

    def ask(self, *command: Any) -> Any:
        """What it answers to a command."""
        with redis.Redis(port=self.port, password=self._password, decode_responses=True,
                         **self._tls) as client:  # fmt: skip
            return client.execute_command(*command)

    def primary(self) -> int:
        """The port of the server that it names."""
        return int(self.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def stop(self) -> None:
        """Let it answer nothing, and take connections."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it answer again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, which)


class Sentinels:
    """A primary, a replica, and three sentinels; all with logins, on both sides.

    `password` is what the sentinels ask everybody for; None: they ask for nothing.
    `tls` is a folder with server.pem, server.key and ca.pem for TLS everywhere.
    """

    def __init__(
        self,
        binary: Path,
        *,
        options: Mapping[str, str] | None = None,
        tls: Path | None = None,
        password: str | None = SENTINEL_PASSWORD,
    ) -> None:
        self._tls = tls
        self._password = password
        self._tls_ports: dict[int, int] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="expirebridge-sentinels-"))
        self._stack = ExitStack()
        self.servers = [self._server(binary, options or {}) for _ in range(2)]
        """The first is the primary at the beginning."""
        self.sentinels: list[Sentinel] = []

    @property
    def url(self) -> str:
        """The URL of database 1 on whichever is the primary."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        scheme, tls = ("redis", "")
        if self._tls:
            scheme, tls = "rediss", f"&ssl_ca_certs={self._tls}/ca.pem"
        login = URL_SENTINEL_LOGIN if self._password else ""
        return f"{scheme}+sentinel://{URL_LOGIN}@{hosts}/{NAME}/1?{login}{tls}"

    def server_url(self, server: EmbeddedServer) -> str:
        """The URL of database 1 on one of the servers, whatever its role."""
        return f"redis://{URL_LOGIN}@{HOST}:{server.port}/1"

    def port_of(self, server: EmbeddedServer) -> int:
        """The port that sentinels and clients use; with TLS not that of `client`."""
        return self._tls_ports.get(server.port, server.port)

    @property
    def primary(self) -> EmbeddedServer:
        """The server that most sentinels name."""
        named = [sentinel.primary() for sentinel in self.sentinels]
        port = max(named, key=named.count)
        return next(server for server in self.servers if self.port_of(server) == port)

    @contextmanager
    def client(self, server: EmbeddedServer, db: int = 1) -> Iterator[redis.Redis]:
        """A plain client of one of the servers, whatever its role."""
        with redis.Redis(port=server.port, db=db, username=LOGIN, password=PASSWORD) as client:
            yield client

    def until_in_step(self) -> None:
        """Wait until the replica has what was written until now."""
        with self.client(self.primary, db=2) as client:
            client.incr("mark")
            assert client.wait(1, round(PATIENCE * 1000)) == 1

    def until_replicating(self) -> None:
        """Wait until the primary has a replica that follows it."""
        until(self._replicates, "a replica to follow the primary")

    def fail_over(self) -> None:
        """Let the sentinels change primary and replica, in order."""
        self.until_replicating()
        until(self._begin_failover, "a failover to begin")

    def until_primary(self, server: EmbeddedServer) -> None:
        """Wait until all sentinels that answer name this server."""

        def named() -> bool:
            ports = []
            for sentinel in self.sentinels:
                with suppress(redis.RedisError):
                    ports.append(sentinel.primary())
            return set(ports) == {self.port_of(server)}

        until(named, f"the sentinels to name {server.port}")

    def cut_off(self, server: EmbeddedServer) -> None:
        """Let the sentinels take a server for dead, and not reach it; everybody else does."""
        with self.client(server) as client:
            client.execute_command("ACL", "SETUSER", WATCHER, "off")
            client.execute_command("CLIENT", "KILL", "USER", WATCHER)

    def reconnect(self, server: EmbeddedServer) -> None:
        """Let the sentinels reach it again."""
        with self.client(server) as client:
            client.execute_command("ACL", "SETUSER", WATCHER, "on")

    def misinform(self, sentinel: Sentinel, server: EmbeddedServer) -> None:
        """Let one sentinel name this server, whatever the others say."""
        sentinel.ask("SENTINEL", "REMOVE", NAME)
        sentinel.ask("SENTINEL", "MONITOR", NAME, HOST, self.port_of(server), QUORUM + 10)
        # Nobody else knows it under this configuration, so it hears of no other primary.
        for name, value in (("auth-user", WATCHER), ("auth-pass", "wrong")):
            sentinel.ask("SENTINEL", "SET", NAME, name, value)

    # Starting

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            for server in self.servers:
                stack.enter_context(server)
                self._give_logins(server)
            primary, replica = self.servers
            with self.client(replica) as client:
                client.replicaof(HOST, str(self.port_of(primary)))
            self.until_replicating_from(primary)
            ids = {free_port(): secrets.token_hex(20) for _ in range(3)}
            for port in ids:
                sentinel = Sentinel(
                    port, self._folder, self._lines(port, ids),
                    tls=bool(self._tls), password=self._password,
                )  # fmt: skip
                stack.callback(sentinel.kill)
                sentinel.start()
                self.sentinels.append(sentinel)
            until(lambda: all(map(self._sees_all, self.sentinels)), "sentinels that know all")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _server(self, binary: Path, options: Mapping[str, str]) -> EmbeddedServer:
        port, all_options = free_port(), {
            "repl-diskless-sync-delay": "0", "masteruser": LOGIN, "masterauth": PASSWORD, **options,
        }  # fmt: skip
        if self._tls:
            self._tls_ports[port] = free_port()
            all_options |= self._tls_options() | {"tls-port": str(self._tls_ports[port])}
        return EmbeddedServer(binary=binary, port=port, options=all_options)

    def _tls_options(self) -> dict[str, str]:
        if self._tls is None:
            return {}
        files = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}
        paths = {f"tls-{name}-file": str(self._tls / file) for name, file in files.items()}
        return {**paths, "tls-auth-clients": "no", "tls-replication": "yes"}

    def _give_logins(self, server: EmbeddedServer) -> None:
        with redis.Redis(port=server.port) as client:
            for name, password in ((LOGIN, PASSWORD), (WATCHER, PASSWORD)):
                client.execute_command(
                    "ACL", "SETUSER", name, "on", f">{password}", "~*", "&*", "+@all"
                )
            client.execute_command("ACL", "SETUSER", "default", "off")

    def _lines(self, port: int, ids: dict[int, str]) -> list[str]:
        primary, replica = self.servers
        others = [
            f"sentinel known-sentinel {NAME} {HOST} {other} {id}"
            for other, id in ids.items()
            if other != port
        ]
        asks = [f"requirepass {self._password}", f"sentinel sentinel-pass {self._password}"]
        return [
            *(f"{name} {value}" for name, value in self._tls_options().items()),
            f"sentinel myid {ids[port]}",
            *(asks if self._password else ["protected-mode no"]),
            f"sentinel monitor {NAME} {HOST} {self.port_of(primary)} {QUORUM}",
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {NAME} 4000",
            f"sentinel auth-user {NAME} {WATCHER}",
            f"sentinel auth-pass {NAME} {PASSWORD}",
            f"sentinel known-replica {NAME} {HOST} {self.port_of(replica)}",
            *others,
        ]

    def _sees_all(self, sentinel: Sentinel) -> bool:
        state = sentinel.ask("SENTINEL MASTERS")[NAME]
        replicas = sentinel.ask("SENTINEL SLAVES", NAME)
        return (
            state["num-other-sentinels"] == 2
            and state["flags"] == "master"
            and any(replica["flags"] == "slave" for replica in replicas)
        )

    def until_replicating_from(self, primary: EmbeddedServer) -> None:
        """Wait until this server has a replica that follows it."""

        def follows() -> bool:
            with self.client(primary) as client:
                return self._has_replica(client)

        until(follows, "a replica to follow")

    def _replicates(self) -> bool:
        with suppress(redis.RedisError), self.client(self.primary) as client:
            return self._has_replica(client)
        return False

    def _has_replica(self, client: redis.Redis) -> bool:
        found: Any = client.info("replication")
        is_primary = found["role"] == "master"
        return bool(is_primary and found.get("slave0", {}).get("state") == "online")

    def _begin_failover(self) -> bool:
        with suppress(redis.ResponseError):  # it has not seen the replica yet
            self.sentinels[0].ask("SENTINEL", "FAILOVER", NAME)
            return True
        return False
