"""Programs that are not expirebridge: redis-cli, Node with ioredis, and a socket with RESP by hand.

Each sends commands, and gives the replies as redis-cli prints them: as text, a list line by line.
"""

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import IO, Any

import pytest

HERE = Path(__file__).parent
HOST = "127.0.0.1"
Word = str | bytes | int


class ReplyError(Exception):
    """The server answered with an error."""


class Client:
    """Sends commands to one database."""

    def __init__(self, port: int, database: int) -> None:
        self.port, self.database = port, database

    def send(self, *command: Word) -> str:
        """Send a command, and give its reply."""
        raise NotImplementedError

    def transaction(self, *commands: tuple[Word, ...]) -> None:
        """Send commands as one MULTI."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection."""


class Cli(Client):
    """redis-cli of Debian's redis-tools, a process for each command."""

    options: tuple[str, ...] = ()

    def send(self, *command: Word) -> str:
        words = [word if isinstance(word, bytes) else str(word) for word in command]
        return self._run(*words)

    def transaction(self, *commands: tuple[Word, ...]) -> None:
        lines = [("MULTI",), *commands, ("EXEC",)]
        self._run(given="".join(" ".join(map(_quoted, line)) + "\n" for line in lines))

    def _run(self, *words: str | bytes, given: str | None = None) -> str:
        base = ("redis-cli", *self.options, "-e", "-h", HOST, "-p", str(self.port))
        base += ("-n", str(self.database))
        done = subprocess.run(
            [*base, *words], input=given, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ReplyError(done.stdout + done.stderr)
        return done.stdout.rstrip("\n")


def _quoted(word: Word) -> str:
    return json.dumps(str(word))


class Program(Client):
    """A process for all that is sent: it takes a JSON array of commands a line."""

    def __init__(self, port: int, database: int, *words: str | Path) -> None:
        super().__init__(port, database)
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def send(self, *command: Word) -> str:
        return text_of(self._ask([command]))

    def transaction(self, *commands: tuple[Word, ...]) -> None:
        self._ask(list(commands))

    def _ask(self, commands: list[tuple[Word, ...]]) -> Any:
        given, told = self._process.stdin, self._process.stdout
        assert given is not None
        assert told is not None
        given.write(json.dumps(commands) + "\n")
        given.flush()
        answer = json.loads(told.readline())
        if "error" in answer:
            raise ReplyError(answer["error"])
        return answer["reply"]

    def close(self) -> None:
        self._process.communicate()


class Raw(Client):
    """A socket, and the protocol written by hand."""

    def __init__(self, port: int, database: int) -> None:
        super().__init__(port, database)
        self._socket = socket.create_connection((HOST, port))
        self._replies: IO[bytes] = self._socket.makefile("rb")
        self.send("SELECT", database)

    def send(self, *command: Word) -> str:
        words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
        head = b"*%d\r\n" % len(words)
        self._socket.sendall(head + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return text_of(self._read())

    def transaction(self, *commands: tuple[Word, ...]) -> None:
        for command in (("MULTI",), *commands, ("EXEC",)):
            self.send(*command)

    def _read(self) -> Any:
        line = self._replies.readline()
        kind, rest = line[:1], line[1:-2]
        match kind:
            case b"+":
                return rest
            case b"-":
                raise ReplyError(rest.decode())
            case b":":
                return int(rest)
            case b"$":
                return None if rest == b"-1" else self._replies.read(int(rest) + 2)[:-2]
            case b"*":
                return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        raise AssertionError(line)

    def close(self) -> None:
        self._replies.close()
        self._socket.close()


def text_of(reply: Any) -> str:
    """A reply as redis-cli prints it."""
    match reply:
        case None:
            return ""
        case bool():  # what some clients make of OK, and of 1 and 0
            return str(int(reply))
        case bytes():
            return reply.decode()
        case list():
            return "\n".join(map(text_of, reply))
    return str(reply)


NAMES = ("redis-cli", "node", "raw")


def client(name: str, port: int, database: int) -> Client:
    """The client of this name; skips the test if what it needs is not here."""
    match name:
        case "redis-cli":
            if shutil.which(name) is None:
                pytest.skip("needs redis-cli (Debian: redis-tools)")
            return Cli(port, database)
        case "node":
            if shutil.which(name) is None or not (HERE / "node_modules" / "ioredis").exists():
                pytest.skip("needs node, and ioredis: make clients")
            url = f"redis://{HOST}:{port}/{database}"
            return Program(port, database, "node", HERE / "client.js", url)
    return Raw(port, database)
