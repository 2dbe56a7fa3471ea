"""A command imports what it needs itself, so that short ones answer soon."""

import subprocess
import sys
from typing import cast

import pytest

from expirebridge.capabilities import given
from expirebridge.cli.application import COMMANDS, asked_for
from expirebridge.cli.words import WORDS, GivesWords

PROGRAM = """
import sys
from expirebridge.cli import application
sys.argv[1:] = {words!r}
try:
    application.application(application.asked_for(sys.argv[1:]))(standalone_mode=False)
except SystemExit:
    pass
for name in ("listener.listener", "checks", "moving.export_command", "moving.import_command"):
    if "expirebridge." + name in sys.modules:
        print("imported", name)
"""


def run(*words: str) -> str:
    program = PROGRAM.format(words=list(words))
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    "words",
    [pytest.param(("list", "--help"), marks=pytest.mark.rest), ("failed", "list", "--help")],
)
def test_a_command_imports_nothing_of_others(words: tuple[str, ...]) -> None:
    printed = run(*words)
    assert f"{' '.join(words[:-1])} [OPTIONS]" in printed
    assert "imported" not in printed


@pytest.mark.parametrize("words", [(), ("--help",), ("lst",)])
def test_whoever_names_no_command_sees_all(words: tuple[str, ...]) -> None:
    assert list(asked_for(list(words))) == list(COMMANDS)


def test_a_word_and_its_place_in_the_help_are_given_once() -> None:
    modules = cast("tuple[GivesWords, ...]", given("words"))
    given_words = [*WORDS.items(), *(item for one in modules for item in one.WORDS.items())]
    assert len(given_words) == len(COMMANDS)
    assert len({(told.panel, told.order) for _, told in given_words}) == len(given_words)
