"""A Python that has imported Django and expirebridge, and becomes one program after another.

A start of Python that imports them takes most of a second; a fork of one that has takes a moment.
Each program has a process of its own, with its own folder, environment and arguments, and nothing
of a project has been imported or set up before it. What a test says of a start itself is tested
with `FreshPython`.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

ROOT = Path(__file__).parents[2]
FLAGS = ["-W", "error"]
IMPORTED = [
    "django.core.management",
    "django.core.management.commands.check",
    "django.core.management.commands.migrate",
    "django.core.management.commands.test",
    "django.db.backends.sqlite3.base",
    "django.test",
    "expirebridge.cli.application",
    "expirebridge.cli.listening",
    "expirebridge.cli.main",
    "expirebridge.cli.output",
    "expirebridge.cli.tasks",
    "expirebridge.contrib.django",
    "expirebridge.contrib.django.apps",
    "expirebridge.contrib.django.backend",
    "expirebridge.contrib.django.checks",
    "expirebridge.contrib.django.management.commands.expirebridge",
    "expirebridge.ledger",
    "expirebridge.listener.process",
    "expirebridge.testing",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "typer._adapters",
]
"""What programs of a project import, whatever its settings are."""


class Process(Protocol):
    """A process that was started."""

    pid: int

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def send_signal(self, sig: int, /) -> None: ...


class Python(Protocol):
    """What starts programs."""

    def started(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path
    ) -> Process:
        """Start Python with these words, as on a command line; its output is appended to a file."""


class FreshPython:
    """Each program is a start of Python."""

    def started(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path
    ) -> Process:
        """Start Python with these words, as on a command line; its output is appended to a file."""
        with output.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, *FLAGS, *words], cwd=folder, env=environment,
                stdout=file, stderr=file,
            )  # fmt: skip


class _Fork:
    """A process that was forked: its parent is the prepared Python."""

    def __init__(self, python: "PreparedPython", pid: int) -> None:
        self._python = python
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._python.asked(ended=self.pid)
        return self._code

    def wait(self) -> int:
        if (code := self.poll()) is not None:
            return code
        end = os.pidfd_open(self.pid)  # whose number it keeps until it is asked for
        try:
            while (code := self.poll()) is None:
                select.select([end], [], [])
        finally:
            os.close(end)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:  # until it is asked for, an ended process keeps its number
            os.kill(self.pid, sig)


class PreparedPython:
    """Each program is a fork of one process, which starts with the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: TextIO | None = None

    def started(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path
    ) -> Process:
        """Start Python with these words, as on a command line; its output is appended to a file."""
        pid = self.asked(
            words=words, folder=str(folder), environment=dict(environment), output=str(output)
        )
        assert pid is not None
        return _Fork(self, pid)

    def asked(self, **request: Any) -> int | None:
        """Send a request to the process, and return its answer."""
        if self._lines is None:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                self._process = subprocess.Popen(
                    [sys.executable, *FLAGS, "-m", __name__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
                )
                self._lines = ours.makefile("rw")
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        answer: int | None = json.loads(self._lines.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._lines is not None:
            self._lines.close()
            self._process.wait()


def _serve(requests: TextIO) -> list[str] | None:
    """Answer requests, to their end; in the process of a program, return its words."""
    while line := requests.readline():
        request = json.loads(line)
        answer: int | None = None
        if "ended" in request:
            pid, status = os.waitpid(request["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                return _become(**request)
        requests.write(f"{json.dumps(answer)}\n")
        requests.flush()
    return None


def _become(words: list[str], folder: str, environment: dict[str, str], output: str) -> list[str]:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(file)
    # What starts itself again is a start of Python.
    sys.orig_argv[:] = [sys.executable, *FLAGS, *words]
    sys.path[0] = folder
    return words


def _run(words: list[str]) -> int:
    """Do what Python does with these words; return the exit code."""
    try:
        _execute(words)
    except SystemExit as exit:
        if exit.code is None or isinstance(exit.code, int):
            return exit.code or 0
        sys.stderr.write(f"{exit.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> None:
    """End as Python does, but for the work of taking all modules apart."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _execute(words: list[str]) -> None:
    match words:
        case ["-c", text, *rest]:
            sys.argv[:] = ["-c", *rest]
            exec(text, {"__name__": "__main__"})  # noqa: S102 - that is what was asked for
        case ["-m", module, *rest]:
            sys.argv[1:] = rest
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [file, *_]:
            sys.argv[:] = words
            runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    for name in IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):  # an extra that is not installed
            importlib.import_module(name)
    gc.freeze()  # no program looks through what it has not made itself
    with socket.socket(fileno=int(sys.argv[1])) as ours, ours.makefile("rw") as lines:
        program = _serve(lines)
    if program is not None:
        _end(_run(program))
