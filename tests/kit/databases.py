"""Finds the SQL databases that this machine can run, and starts them.

PostgreSQL and MariaDB are Debian's. They refuse to run as root: then they run as the user that
their package makes. SQLite is always there.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import URL, create_engine, make_url, text
from sqlalchemy.exc import DBAPIError

from expirebridge.embedded.server import free_port
from tests.kit.patience import PATIENCE
from tests.kit.processes import children_of, until_ended

SQLITE, POSTGRESQL, MARIADB = "sqlite", "postgresql", "mariadb"
NAMES = (SQLITE, POSTGRESQL, MARIADB)
_DEBIANS = sorted(str(path) for path in Path("/usr/lib/postgresql").glob("*/bin"))
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/bin", "/usr/sbin", *_DEBIANS])


@cache
def binary_of(name: str) -> str | None:
    """The server's program; None if it is not installed."""
    return shutil.which({POSTGRESQL: "postgres", MARIADB: "mariadbd"}[name], path=_PATH)


@cache
def version_of(name: str) -> str:
    """What a database says of itself, or that it is not here."""
    if name == SQLITE:
        with create_engine("sqlite://").connect() as connection:
            return f"SQLite {connection.exec_driver_sql('SELECT sqlite_version()').scalar()}"
    if (binary := binary_of(name)) is None:
        return "not found"
    return subprocess.run(
        [binary, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()


def client_of(name: str) -> str | None:
    """The command with which people talk to a database."""
    command = {POSTGRESQL: "psql", MARIADB: "mariadb", SQLITE: "sqlite3"}[name]
    return shutil.which(command, path=_PATH)


class DatabaseServer:
    """A running PostgreSQL or MariaDB with its data in a folder of its own.

    Unless it is durable, a commit does not wait for the disk: it survives the server's end, but
    not the machine's. `settings` are PostgreSQL's, as in `max_connections=50`.
    """

    def __init__(self, name: str, *, durable: bool = False, settings: Sequence[str] = ()) -> None:
        self.name = name
        self._durable = durable
        self._settings = settings
        self.port = free_port()
        self._binary = Path(binary_of(name) or "")
        user = {POSTGRESQL: "postgres", MARIADB: "mysql"}[name]
        self._user = user if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self._folder = Path(tempfile.mkdtemp(prefix=f"expirebridge-{name}-"))
        shutil.chown(self._folder, self._user)
        self._databases = count(1)
        self._log = (self._folder / "log").open("wb")
        self._process: subprocess.Popen[bytes] | None = None
        self._initialise()
        self.start()

    def _run_as(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        entry = pwd.getpwnam(self._user)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def _initialise(self) -> None:
        data = self._folder / "data"
        if self.name == POSTGRESQL:
            command = [
                str(self._binary.parent / "initdb"), "--pgdata", str(data), "--auth", "trust",
                "--username", "root", "--encoding", "UTF8", "--no-locale", "--no-sync",
            ]  # fmt: skip
        else:
            command = [
                shutil.which("mariadb-install-db", path=_PATH) or "mariadb-install-db",
                "--no-defaults", f"--datadir={data}", "--skip-test-db",
                "--auth-root-authentication-method=normal", "--innodb-flush-log-at-trx-commit=0",
                f"--tmpdir={self._folder}",
            ]  # fmt: skip
        subprocess.run(
            command, stdout=self._log, stderr=self._log, check=True, cwd="/", **self._run_as()
        )

    def _command(self) -> list[str]:
        data = str(self._folder / "data")
        if self.name == POSTGRESQL:
            settings = ["listen_addresses=127.0.0.1", "max_connections=50"]
            settings += [*self._settings, *([] if self._durable else ["fsync=off"])]
            return [
                str(self._binary), "-D", data, "-p", str(self.port), "-k", str(self._folder),
                *(word for setting in settings for word in ("-c", setting)),
            ]  # fmt: skip
        return [
            str(self._binary), "--no-defaults", f"--datadir={data}", f"--port={self.port}",
            "--bind-address=127.0.0.1", f"--socket={self._folder}/socket", "--skip-name-resolve",
            f"--pid-file={self._folder}/pid",
            f"--innodb-flush-log-at-trx-commit={1 if self._durable else 0}",
            "--innodb-buffer-pool-size=32M", "--skip-log-bin",
            # One that starts removes the temporary tables of those that run, where they share it.
            f"--tmpdir={self._folder}",
        ]  # fmt: skip

    @property
    def pid(self) -> int:
        """Its process; PostgreSQL has others below it."""
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> URL:
        """The server's own database, as its administrator."""
        driver, database = {
            POSTGRESQL: ("postgresql+psycopg", "postgres"),
            MARIADB: ("mariadb+pymysql", "mysql"),
        }[self.name]
        return URL.create(
            driver, username="root", host="127.0.0.1", port=self.port, database=database
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(
            self._command(), stdout=self._log, stderr=self._log, cwd="/", **self._run_as()
        )
        engine = create_engine(self.url)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                with engine.connect():
                    break
            except DBAPIError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError((self._folder / "log").read_text("utf-8")[-3000:]) from None
                time.sleep(0.02)
        engine.dispose()

    def new_database(self, encoding: str | None = None) -> URL:
        """An empty database, as its administrator; of PostgreSQL, in that encoding."""
        name = f"test_{next(self._databases)}"
        how = f" ENCODING '{encoding}' TEMPLATE template0" if encoding else ""
        engine = create_engine(self.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}{how}"))
        engine.dispose()
        return self.url.set(database=name)

    def kill(self) -> None:
        """End it as a power cut would. `start` starts it again, with its data."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it, without waiting for its clients."""
        self._end({POSTGRESQL: signal.SIGINT, MARIADB: signal.SIGTERM}[self.name])

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            # PostgreSQL's processes end by themselves, and hold its memory until then.
            with until_ended(children_of(self._process.pid)):
                self._process.send_signal(how)
                self._process.wait(PATIENCE)
            self._process = None

    def close(self) -> None:
        """End it for good, and remove its data."""
        self._end(signal.SIGKILL)
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Standby(DatabaseServer):
    """A PostgreSQL in recovery: it follows another, and takes no writes until it is promoted."""

    def __init__(self, primary: DatabaseServer) -> None:
        self._primary = primary
        super().__init__(POSTGRESQL)

    def _initialise(self) -> None:
        subprocess.run(
            [
                shutil.which("pg_basebackup", path=_PATH) or "pg_basebackup",
                "--pgdata", str(self._folder / "data"),
                "--host", "127.0.0.1", "--port", str(self._primary.port), "--username", "root",
                "--write-recovery-conf", "--checkpoint", "fast", "--no-sync",
            ],
            stdout=self._log, stderr=self._log, check=True, cwd="/", **self._run_as(),
        )  # fmt: skip

    def promote(self) -> None:
        """Let it take writes."""
        engine = create_engine(self.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT pg_promote()"))
        engine.dispose()


class Database(Protocol):
    """Where new databases come from."""

    name: str

    def new_database(self) -> URL:
        """An empty database."""
        ...


class SqliteFiles:
    """Databases in files."""

    name = SQLITE

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = count(1)

    def new_database(self) -> URL:
        """A file that is not there yet."""
        return make_url(f"sqlite:///{self._folder}/{next(self._files)}.db")


@contextmanager
def database_of(name: str, folder: Path, *, durable: bool = False) -> Iterator[Database]:
    """A database server of that name, which runs during the `with` block."""
    if name == SQLITE:
        yield SqliteFiles(folder)
        return
    server = DatabaseServer(name, durable=durable)
    try:
        yield server
    finally:
        server.close()
