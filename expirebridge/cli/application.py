"""The commands of `expirebridge`, and the help that lists them."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from expirebridge.capabilities import given
from expirebridge.cli.advice import advising, in_options
from expirebridge.cli.words import PANELS, WORDS, GivesWords, Word
from expirebridge.errors import InvalidTask
from expirebridge.handlers.django_project import set_up_django
from expirebridge.settings import warn_of_variables

_GIVEN = (WORDS, *(module.WORDS for module in cast("tuple[GivesWords, ...]", given("words"))))
COMMANDS: Mapping[str, Word] = dict(
    sorted(
        (item for words in _GIVEN for item in words.items()),
        key=lambda item: (PANELS.index(item[1].panel), item[1].order),
    )
)
"""Each command or group by its word, in the order of the help."""


class HeadedGroup(TyperGroup):
    """A group whose help lists its commands by their help panels, and whose errors give advice.

    Typer shows panels only with rich's markup, which would read [server] and [default: ...] in
    the help as markup.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parse the words before the command; an error says what to type instead."""
        with advising():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Parse the words of the command, and call it; an error says what to type instead."""
        with advising():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel, in the order of the commands."""
        longest = max(map(len, self.commands), default=0)
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            text = command.get_short_help_str(formatter.width - longest - 6)
            sections.setdefault(command.rich_help_panel or "Commands", []).append(
                (name.ljust(longest), text)
            )
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def application(words: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands; what the others need is not imported."""
    app = typer.Typer(
        cls=HeadedGroup,
        help="Tasks that run later: each is a plain Redis key with a TTL.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # it would read [server] and [default: ...] as markup
        epilog="Exit codes: 0 done; 1 the server failed or refused the call, or the handlers "
        "cannot be used; 2 wrong input; "
        "3 the task or group does not exist, or its state does not allow the change, or compat "
        "found tasks that would fail; 4 a listener is stuck and must be replaced; 5 the doctor "
        "found an error.",
    )
    app.callback()(_root)
    for word in words:
        panel, _, function = COMMANDS[word]
        module, _, name = function.rpartition(".")
        found = getattr(import_module(f"expirebridge.{module}"), name)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=word, rich_help_panel=panel)
        else:
            app.command(word, rich_help_panel=panel)(found)
    return app


def asked_for(words: list[str]) -> Iterable[str]:
    """Return the command that these words call; all if they call none, as for help."""
    if words == ["--version"]:
        return []
    return words[:1] if words and words[0] in COMMANDS else COMMANDS


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - 30 ms that others need not wait

        typer.echo(f"expirebridge {version('expirebridge')}")
        raise typer.Exit


def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Keep a single command a word: without this Typer takes it for the whole."""


def call(words: list[str], *, name: str | None) -> None:
    """Call the command with these words, and raise SystemExit; `name` is that in its help."""
    # A listener sets it up itself, in the process that it becomes.
    if words and words[0] in COMMANDS and words[0] != "listen":
        from expirebridge.cli.output import prints_aside  # noqa: PLC0415 - rich

        with prints_aside():
            set_up_django()
        warn_of_variables()
    app = application(asked_for(words))
    try:
        app(args=words, prog_name=name)
    except InvalidTask as error:
        error.args = (in_options(str(error), _called(typer.main.get_command(app), words)),)
        raise


def _called(group: Any, words: Iterable[str]) -> Any:
    """The command that these words call."""
    command = group
    for word in words:
        inner = getattr(command, "commands", {})
        if word not in inner:
            break
        command = inner[word]
    return command
