"""A URL that cannot be read is bad input to every command, and nobody sees its password."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from expirebridge import Bridge, InvalidSetting, web
from expirebridge.cli.application import application, asked_for
from tests.kit.invoked import commands, run
from tests.kit.logs import logging_restored

SECRET = "s3cr"
REST = "etpw"
URLS = [f"redis://ann:{SECRET}/{REST}@h/1", f"redis://ann:{SECRET}[{REST}@h/1"]
REFUSED = "url='redis://ann:***@h/1': in a login, write %2F for /"

WORDS: dict[str, list[str]] = {
    "beat": ["a"],
    "cancel": ["a"],
    "edit": ["a", "--args", "[1]"],
    "failed purge": ["--yes"],
    "failed retry": ["--yes"],
    "groups cancel": ["a"],
    "groups close": ["a"],
    "groups show": ["a"],
    "handlers": ["--fleet"],
    "hold": ["--tag", "a"],
    "import": [os.devnull],
    "key": ["a", "a.b"],
    "let-pass": ["a"],
    "limit": ["a", "2"],
    "make": ["a.b", "--in", "1"],
    "move": ["--to", "redis://localhost:1/1"],
    "partitions create": ["4"],
    "pause": ["a"],
    "put-off": ["a", "--by", "1"],
    "release": ["--tag", "a"],
    "reschedule": ["a", "--in", "1"],
    "resume": ["a"],
    "run": ["a"],
    "series next": ["a"],
    "series pause": ["a"],
    "series prune": ["--yes"],
    "series remove": ["a"],
    "series resume": ["a"],
    "series run": ["a"],
    "series show": ["a"],
    "show": ["a"],
    "signal": ["a"],
    "watch": ["a", "a.b", "--ttl", "1"],
    "weight": ["a", "b", "2"],
    "why": ["a"],
}
"""What a command needs besides its name."""


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """`listen` configures logging, and here it runs in this process."""
    with logging_restored():
        yield


def takes_a_url(command: Any) -> bool:
    return any("--url" in parameter.opts for parameter in command.params)


def test_every_command_refuses_it() -> None:
    asked = [path for path, command in commands() if takes_a_url(command)]
    assert len(asked) > 50
    answers = {(path, url): answer(path, url) for path in asked for url in URLS}
    assert [call for call, shown in answers.items() if not shown.startswith(REFUSED)] == []
    assert [call for call, shown in answers.items() if SECRET in shown or REST in shown] == []


def answer(path: str, url: str) -> str:
    """How a command refuses a URL, and what it has printed before."""
    words = [*path.split(), *WORDS.get(path, []), "--url", url]
    result = CliRunner().invoke(application(asked_for(words)), words)
    if not isinstance(result.exception, InvalidSetting):
        return f"not refused: {result.exception!r} {result.output}"
    return f"{result.exception} {result.output}"


@pytest.mark.parametrize("words", [["listen", "--tasks", "tasks"], ["count"]])
@pytest.mark.parametrize("url", URLS)
def test_it_is_said_in_one_line(url: str, words: list[str]) -> None:
    result = run(*words, url=url)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"expirebridge: {REFUSED.replace('url', 'EXPIREBRIDGE_URL')}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("url", URLS)
def test_a_program_is_told_of_the_variable(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_URL", url)
    with pytest.raises(InvalidSetting, match=r"^EXPIREBRIDGE_URL='redis://ann:\*\*\*@h/1': "):
        Bridge()
    with pytest.raises(InvalidSetting, match=r"^url='redis://h:x/1': "):
        Bridge("redis://h:x/1")


@pytest.mark.parametrize("url", URLS)
def test_the_dashboard_in_an_application_refuses_it(url: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        web.app(url)
    assert str(caught.value).startswith(REFUSED)
