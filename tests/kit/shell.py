"""A shell that runs what a page shows, block after block."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.process_logs import noted

ENDED = "block ended with"


class Shell:
    """A bash that takes blocks from its standard input, until one of them ends it.

    Variables and background processes live on from one block to the next.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, block: str) -> str:
        """Run a block to its end, and return what it printed. Fails if the shell has exited."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{block}\necho {ENDED} $?\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.startswith(ENDED):
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"the shell exited with {self._process.wait()}: {''.join(printed)}")

    def exits(self, block: str) -> int:
        """Run a block that ends the shell, and return its exit code."""
        self._process.communicate(block)
        return self._process.returncode


@contextmanager
def shell(folder: Path, **env: str) -> Iterator[Shell]:
    """A shell in this folder, where `expirebridge` is a command; stderr goes to `shell.log`.

    What it has started in the background and still runs at the end is killed.
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with noted(folder / "shell.log").open("ab") as log, subprocess.Popen(
        ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        cwd=folder, env=os.environ | {"PATH": path} | env, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            yield Shell(process)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)
