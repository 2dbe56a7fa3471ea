"""What machine this is, which servers it has, and which code of ours is measured on it."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from benchmarks.lab.contender import REPOSITORY
from expirebridge.embedded.server import embedded_binary

EMBEDDED = "embedded"
MEASURED = ("expirebridge", "redis.conf")
"""What our results depend on; a commit that changes other files leaves them valid."""


@dataclass(frozen=True, kw_only=True)
class Here:
    """Where measurements are made: it is written into each record."""

    machine: str
    """Processor, cores and memory; results of one name are compared with each other."""
    system: str
    commit: str
    """The latest commit of the measured files; with `-dirty` if they were changed since."""

    @classmethod
    def find(cls) -> Self:
        """Look around."""
        cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        memory = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.M)
        processor = cpu[1] if cpu else platform.machine()
        cores = len(os.sched_getaffinity(0))
        gib = round(int(memory[1]) / 2**20) if memory else 0
        system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
        return cls(
            machine=f"{processor}, {cores} cores, {gib} GiB",
            system=system,
            commit=measured_commit(REPOSITORY),
        )


def measured_commit(repository: Path) -> str:
    """The commit of the code that is measured; `unknown` where there is no git."""
    git = ["git", "-c", "safe.directory=*", "-C", str(repository)]
    asked = (
        [*git, "log", "-1", "--abbrev=10", "--format=%h", "--", *MEASURED],
        [*git, "status", "--porcelain", "--", *MEASURED],
    )
    try:
        commit, changes = (
            subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
            for words in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit or 'unknown'}{'-dirty' if changes else ''}"


def find_servers() -> dict[str, Path]:
    """The servers that may be chosen, by name."""
    found = {EMBEDDED: embedded_binary()}
    # Debian's is in /usr/bin, which a bare PATH may lack.
    if system := shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin"):
        found["redis-server"] = Path(system)
    return found


def version_of(binary: Path) -> str:
    """A server's name and version, as it says itself."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    named = re.match(r"(\w+) server v=(\S+)", said)
    return f"{named[1]} {named[2]}" if named else said.strip()
