"""The command in this process: what a process of its own would add is tested elsewhere."""

import io
import json
import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from expirebridge.cli.application import application, asked_for, call
from expirebridge.cli.main import ending_of
from expirebridge.fleet.operations import asked_of
from expirebridge.settings import Settings, warn_of_variables
from expirebridge.store.client import Store
from expirebridge.task.calls import claiming
from expirebridge.task.calls.call import new_nonce
from expirebridge.task.calls.claiming import Settlement
from tests.kit.logs import logging_restored
from tests.kit.modules import as_if_new

app = application()
ROOT_COMMAND = typer.main.get_command(app)


def commands(group: Any = ROOT_COMMAND, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command, by the words with which it is called."""
    for name, command in getattr(group, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield path + name, command


def invoke(*words: str, url: str, code: int = 0, answer: str | None = None) -> str:
    """Run a command and return its stdout; `answer` is what is typed."""
    # To build all commands takes ten times as long as to call one.
    asked = application(asked_for(list(words)))
    result = CliRunner().invoke(
        asked, words, input=answer, env={"EXPIREBRIDGE_URL": url}, catch_exceptions=False
    )
    assert result.exit_code == code, result.output
    return result.stdout


def invoke_json(*words: str, url: str) -> Any:
    return json.loads(invoke(*words, "--json", url=url))


def run(
    *words: str | Path, url: str | None = None, answer: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, as `processes.run` does, but in this process.

    Its exit code, its output and its one line about an error are those of a process. `answer` is
    its stdin, which is no terminal. It imports handlers anew. What other threads print meanwhile is
    caught as well. Signals, `execv` and Django's set-up need a process.
    """
    # A new process has asked no listeners what they know, and warned of nothing.
    asked_of.clear()
    warn_of_variables.cache_clear()
    typed = [str(word) for word in words]
    code, last_words = 0, ""
    variables = env | ({"EXPIREBRIDGE_URL": url} if url else {})
    folder = _handlers(typed)
    with _environment(typed, variables, answer), as_if_new(folder, folder.name), _captured() as out:
        try:
            call(typed, name="expirebridge")
        except (Exception, SystemExit) as error:
            ending = ending_of(error)
            if ending is None:
                raise
            code, last_words = ending
    stdout, stderr = (stream.buffer.getvalue().decode() for stream in out)
    return subprocess.CompletedProcess(["expirebridge", *typed], code, stdout, stderr + last_words)


class _Output(io.TextIOWrapper):
    """What a command writes to a pipe."""

    buffer: io.BytesIO

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", errors="backslashreplace", write_through=True)


@contextmanager
def _environment(typed: list[str], env: dict[str, str], answer: str) -> Iterator[None]:
    """The variables, stdin and command line of the command; what it changes here is undone.

    With the command line of these tests it would start them again as its workers.
    """
    at_sigterm = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, logging_restored():
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answer.encode()), "utf-8"))
        patch.setattr(sys, "orig_argv", [sys.executable, "-m", "expirebridge", *typed])
        patch.setattr(sys, "excepthook", sys.excepthook)  # Typer sets one of its own
        try:
            yield
        finally:
            if signal.getsignal(signal.SIGTERM) is not at_sigterm:
                signal.signal(signal.SIGTERM, at_sigterm)


def _handlers(typed: list[str]) -> Path:
    """The folder of handlers that the command may load."""
    return Path(typed[typed.index("--tasks") + 1] if "--tasks" in typed else "tasks").resolve()


@contextmanager
def _captured() -> Iterator[tuple[_Output, _Output]]:
    """Stdout and stderr, with the warnings of commands, which set up no log."""
    out = _Output(), _Output()
    warnings = logging.StreamHandler(out[1])
    warnings.setLevel(logging.WARNING)
    warnings.setFormatter(logging.Formatter("expirebridge: %(message)s"))
    # A listener in this process logs from another thread.
    here = threading.get_ident()
    warnings.addFilter(lambda record: record.thread == here)
    logging.getLogger().addHandler(warnings)
    with redirect_stdout(out[0]), redirect_stderr(out[1]):
        yield out


def end_due_tasks(
    store: Store, outcome: str = "failed", reason: str = "boom", delay: float = 0
) -> list[str]:
    """Claim all that is due, and settle it so, as a listener would; return the ids."""
    settings = Settings()
    ended: list[str] = []
    while True:
        claim = store.run(claiming.claim(new_nonce(), settings, places=100, idle=True))
        if not claim.tasks:
            return ended
        settlements = [Settlement(one.id, one.token, outcome, delay, reason) for one in claim.tasks]
        store.run(claiming.settle(settlements, settings))
        ended += [one.id for one in claim.tasks]
