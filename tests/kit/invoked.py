"""The command in this process: what a process of its own would add is tested elsewhere."""

import json
from collections.abc import Iterator
from typing import Any

import typer
from typer.testing import CliRunner

from expirebridge.cli.application import application
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.store.commands import claiming
from expirebridge.store.commands.call import new_nonce
from expirebridge.store.commands.claiming import Settlement

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
    result = CliRunner().invoke(
        app, words, input=answer, env={"EXPIREBRIDGE_URL": url}, catch_exceptions=False
    )
    assert result.exit_code == code, result.output
    return result.stdout


def invoke_json(*words: str, url: str) -> Any:
    return json.loads(invoke(*words, "--json", url=url))


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
