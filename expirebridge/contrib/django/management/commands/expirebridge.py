"""The command `manage.py expirebridge`: the command `expirebridge`, in the project."""

import argparse
from typing import Any

import typer
from django.core.management.base import BaseCommand, CommandError, CommandParser

from expirebridge.cli import application, main
from expirebridge.errors import ExpirebridgeError

_OF_DJANGO = ("--settings", "--pythonpath")
"""Options, with a value, that manage.py has read already."""


class Command(BaseCommand):
    """Passes its words on."""

    help = "Runs expirebridge: all commands and options of the command of that name."
    requires_system_checks: tuple[str, ...] = ()  # what a command cannot use, it says itself

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command, and end the process."""
        main.run(_without_djangos(argv[2:]), name=f"{argv[0]} {argv[1]}")

    def print_help(self, prog_name: str, subcommand: str) -> None:
        """Print the help, for `manage.py help expirebridge`."""
        main.run(["--help"], name=f"{prog_name} {subcommand}")

    def add_arguments(self, parser: CommandParser) -> None:
        """Take all words, for `call_command`."""
        parser.add_argument("words", nargs=argparse.REMAINDER)

    def handle(self, *_: Any, words: list[str], **__: Any) -> None:
        """Run the command in this process, for `call_command`. Raises CommandError."""
        command = typer.main.get_command(application.application(application.asked_for(words)))
        try:
            code = command.main(words, standalone_mode=False)
        except (ExpirebridgeError, typer.Abort) as error:
            raise CommandError(str(error)) from error
        if code:
            raise CommandError(f"{words[0]} ended with exit code {code}", returncode=code)


def _without_djangos(words: list[str]) -> list[str]:
    """The words without options of Django."""
    left: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*left, word, *rest]
        if word in _OF_DJANGO:
            next(rest, None)
        elif not word.startswith(tuple(f"{option}=" for option in _OF_DJANGO)):
            left.append(word)
    return left
