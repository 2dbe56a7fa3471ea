"""Does what a page shows: writes its files, types its commands, and compares what they print.

- a Python block is a file, which its first line names, or what is added at its end;
- in a `console` block, a line after `$ ` is a command and the lines below are what it prints, if
  the page shows any; `^C` interrupts the listener;
- a `text` block is what the listener prints next.

`expirebridge server`, `expirebridge listen` and web servers go on in the background: the lines
below them appear in some order, maybe between others, since a handler prints while its listener
logs. `...` on a page stands for anything. Times, ages and the number of a tick differ from run to
run, and the ports are free ones.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

from expirebridge.embedded.server import free_port
from tests.kit.patience import PATIENCE
from tests.kit.process_logs import noted
from tests.kit.processes import ROOT

_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?Z?")
_AGE = re.compile(r"\((?:in [^()]+|[^()]+ ago)\)|(?<= )\d+[dhms](?: \d+[hms])?$")
_TICK = re.compile(r"@\d{13}")
_WEB = {"uvicorn": ("--port", "{port}"), "gunicorn": ("--bind", "127.0.0.1:{port}")}
"""Web servers, and the option that gives each another port than 8000."""
_SERVERS = (
    "expirebridge server", "expirebridge listen", "python manage.py expirebridge listen", *_WEB,
)  # fmt: skip
_PROGRAMS = {name: f"-m {name}" for name in ("uvicorn", "gunicorn", "pytest", "expirebridge")} | {
    "python": "", "django-admin": "-m django",
}  # fmt: skip
_READS = ("expirebridge show", "expirebridge list", "expirebridge series next", "python look.py")
"""Commands that change nothing: they are repeated until they print what the page shows."""


def _without_times(line: str) -> str:
    line = _TICK.sub("@TICK", _TIME.sub("TIME", line))
    return " ".join(_AGE.sub("AGE", line.rstrip()).split())


class Terminals:
    """The terminals of a reader: a folder, an environment, and what runs in the background."""

    def __init__(self, folder: Path) -> None:
        self.port, self._web_port = free_port(), free_port()
        self._folder = folder
        (folder / "bin").mkdir()
        for name, words in _PROGRAMS.items():
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            program.chmod(0o755)
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DJANGO", "EXPIREBRIDGE", "PYTEST"))
        } | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",  # a terminal shows a line at once; a file would not
            "EXPIREBRIDGE_URL": f"redis://localhost:{self.port}/1",
        }
        self._background: list[subprocess.Popen[bytes]] = []
        self._output = folder / "nothing.log"
        self._read: set[int] = set()

    def follow(self, page: str) -> list[str]:
        """Do all of the page, and return the commands that were typed."""
        typed = []
        for kind, text in _BLOCK.findall(page):
            if kind == "python":
                self._write(text)
            elif kind == "text":
                self._until_printed(text.splitlines())
            else:
                for command, shown in _commands(text):
                    self._type(command, shown)
                    typed.append(command)
        return typed

    def _write(self, text: str) -> None:
        name = re.match(r"# (\S+\.py)(, at its end)?\n", text)
        assert name is not None, f"a block names no file: {text}"
        file = self._folder / name[1]
        file.parent.mkdir(exist_ok=True)
        text = text.replace("redis.Redis(db=1)", f"redis.Redis(port={self.port}, db=1)")
        with file.open("a" if name[2] else "w", encoding="utf-8") as written:
            written.write(text)

    def _type(self, command: str, shown: list[str]) -> None:
        if command == "^C":
            self._background[-1].send_signal(signal.SIGINT)
            # Uvicorn stops in order, and then ends by the signal that it got.
            assert self._background[-1].wait(PATIENCE) in {0, -signal.SIGINT}
        elif command.startswith("pip install "):
            _check_packages(command)
        elif command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self._environment[name] = value
        elif command.startswith(_SERVERS):
            self._begin(command)
            self._until_printed(shown)
        else:
            self._run(command, shown)

    def _begin(self, command: str) -> None:
        words = shlex.split(command)
        if command == "expirebridge server":
            words += ["--port", str(self.port)]
        words += [word.format(port=self._web_port) for word in _WEB.get(words[0], ())]
        self._output = noted(self._folder / f"{len(self._background)}.log")
        self._read = set()
        with self._output.open("wb") as output:
            process = subprocess.Popen(
                [self._folder / "bin" / words[0], *words[1:]],
                cwd=self._folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._background.append(process)
        deadline = time.monotonic() + PATIENCE
        while not self._output.read_bytes():
            assert time.monotonic() < deadline, command
            time.sleep(0.05)

    def _until_printed(self, shown: list[str]) -> None:
        """Wait until the last that was begun in the background has printed these lines."""
        deadline = time.monotonic() + PATIENCE
        for line in shown:
            while (found := self._place_of(line)) is None:
                assert time.monotonic() < deadline, (line, self._output.read_text())
                assert self._background[-1].poll() is None, self._output.read_text()
                time.sleep(0.05)
            self._read.add(found)

    def _place_of(self, line: str) -> int | None:
        """The first printed line that is like this, and that no other line of the page was."""
        printed = enumerate(self._output.read_text().splitlines())
        alike = (at for at, one in printed if at not in self._read and self._alike(line, one))
        return next(alike, None)

    def _run(self, command: str, shown: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        typed = command.replace("localhost:8000", f"localhost:{self._web_port}")
        while True:
            ran = subprocess.run(
                ["/bin/sh", "-c", typed], cwd=self._folder, env=self._environment,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
            printed = ran.stdout.splitlines()
            alike = len(printed) == len(shown) and all(map(self._alike, shown, printed))
            if alike or not shown:
                return
            again = command.startswith(_READS) and time.monotonic() < deadline
            assert again, (command, shown, printed)

    def _alike(self, shown: str, printed: str) -> bool:
        for port, usual in (self.port, "6379"), (self._web_port, "8000"):
            printed = re.sub(rf":{port}\b", f":{usual}", printed)
        parts = _without_times(shown).split("...")
        pattern = ".*".join(map(re.escape, parts))
        return re.fullmatch(pattern, _without_times(printed)) is not None

    def close(self) -> None:
        """Kill what runs in the background: listeners, and then the server in order."""
        for process in reversed(self._background):
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


@contextmanager
def terminals(folder: Path) -> Iterator[Terminals]:
    """Terminals in this folder; what was begun in them has ended when the block ends."""
    opened = Terminals(folder)
    try:
        yield opened
    finally:
        opened.close()


def _commands(block: str) -> list[tuple[str, list[str]]]:
    """The commands of a console block, each with the lines that it prints."""
    commands: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append((line.removeprefix("$ "), []))
        elif line == "^C":
            commands.append((line, []))
        else:
            commands[-1][1].append(line)
    return commands


def _check_packages(command: str) -> None:
    """Check that a `pip install` names extras of this project, or packages that tests have."""
    extras = re.fullmatch(r"pip install '\.\[([\w,]+)\]'", command)
    if extras is None:
        for package in command.split()[2:]:
            distribution(package)  # raises if it is not installed
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
