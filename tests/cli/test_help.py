"""What each command says of itself, and that its examples can be typed."""

import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from expirebridge.cli.application import COMMANDS
from expirebridge.cli.words import PANELS
from tests.kit.invoked import ROOT_COMMAND, commands, invoke

CALL = re.compile(r"(?:^|\| |\$\()expirebridge ([^|>&)]*)")
NO_JSON = {
    "acl",
    "dashboard",
    "demo",
    "export",
    "functions load",
    "functions show",
    "init",
    "key",
    "ledger ddl",
    "listen",
    "server",
}
"""What prints lines for another program, or runs until it is stopped."""


def parse(words: list[str]) -> None:
    """Parse a call without running it."""
    command, path = ROOT_COMMAND, list(words)
    while hasattr(command, "commands"):
        command = command.commands[path.pop(0)]
    command.make_context("expirebridge", path)


def test_a_command_has_examples_that_can_be_typed() -> None:
    for path, command in commands():
        examples = re.findall(r"Example: (.*)", command.help or "")
        calls = [call for line in examples for call in CALL.findall(line)]
        assert any(call.startswith(path) for call in calls), path
        for call in calls:
            parse(shlex.split(call.rstrip('" ')))


def test_these_commands_alone_print_no_json() -> None:
    without = {
        path
        for path, command in commands()
        if "--json" not in {option for parameter in command.params for option in parameter.opts}
    }
    assert without == NO_JSON


def test_each_example_has_a_line_of_its_own() -> None:
    for path, command in commands():
        shown = command.get_help(command.make_context(path, [], resilient_parsing=True))
        written = [line.strip() for line in shown.splitlines() if "Example: " in line]
        assert [line.rfind("Example: ") for line in written] == [0] * len(written), path


def test_a_wrong_option_in_an_example_would_be_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["list", "--statte", "failed"])


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        pytest.param("expirebridge fore", "forecast", marks=pytest.mark.rest),
        ("expirebridge list --state su", "succeeded"),
    ],
)
def test_the_shell_completes_commands_and_states(typed: str, completed: str) -> None:
    result = subprocess.run(
        [Path(sys.executable).with_name("expirebridge")],
        capture_output=True, text=True, check=False,
        env=os.environ | {
            "_EXPIREBRIDGE_COMPLETE": "complete_bash", "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split()) - 1),
        },
    )  # fmt: skip
    assert completed in result.stdout.split()


def test_the_help_lists_the_exit_codes(url: str) -> None:
    overview = " ".join(invoke("--help", url=url).split())
    for shown in (
        "0 done",
        "1 the server",
        "2 wrong input",
        "3 the task or group does not exist",
        "5 the doctor",
    ):
        assert shown in overview


def test_it_prints_its_version(url: str) -> None:
    assert invoke("--version", url=url) == f"expirebridge {version('expirebridge')}\n"
    command = Path(sys.executable).with_name("expirebridge")
    printed = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout == f"expirebridge {version('expirebridge')}\n"


def test_the_help_lists_commands_below_headings(url: str) -> None:
    shown: dict[str, list[str]] = {}
    heading = ""
    for line in invoke("--help", url=url).splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line.removesuffix(":")
        elif line.startswith("  ") and line.split()[0] in COMMANDS:
            shown.setdefault(heading, []).append(line.split()[0])
    assert shown == {
        panel: [word for word, told in COMMANDS.items() if told.panel == panel] for panel in PANELS
    }
    assert list(shown) == list(PANELS)
