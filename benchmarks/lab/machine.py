"""What machine this is, and which servers it has."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from expirebridge.embedded.server import embedded_binary

EMBEDDED = "embedded"


def describe() -> dict[str, str | int | float]:
    """Processor, cores, memory and system."""
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.M)
    return {
        "processor": cpu[1] if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else 0,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


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
