"""Says what to type instead of a word, an option or an argument that a command does not take."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import typer

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The base of what Typer raises for a call that it cannot parse; it has no public name."""

_OPTIONS = {
    "after": ("--in", "--by"),
    "app": ("--tasks",),
    "broker": ("--url",),
    "by": ("--in",),
    "c": ("--concurrency",),
    "countdown": ("--in", "--by", "--at"),
    "date": ("--at",),
    "db": ("--url",),
    "delay": ("--in", "--by", "--at"),
    "eta": ("--at",),
    "force": ("--yes",),
    "format": ("--json", "--log-format"),
    "function": ("--func", "--functions"),
    "handler": ("--func",),
    "host": ("--url",),
    "in": ("--by", "--until"),
    "interval": ("--every",),
    "name": ("--func",),
    "output": ("--json",),
    "queue": ("--functions", "--func"),
    "queues": ("--functions", "--func"),
    "redis": ("--url",),
    "server": ("--url",),
    "since": ("--failed-since",),
    "status": ("--state",),
    "threads": ("--concurrency",),
    "time": ("--at",),
    "type": ("--func",),
    "until": ("--due-before", "--at"),
    "when": ("--in", "--at"),
}
"""What others call an option, and the names here, of which a command may have some."""

_POLICIES = {
    "cron": "A recurring task is a series: @every(...) above its handler, or Bridge.schedule",
    "every": "A recurring task is a series: @every(...) above its handler, or Bridge.schedule",
    "max-retries": "Retries are the handler's, @handler(retry=...), or those of Bridge.make_task",
    "priority": "There is one alone, `make --urgent`",
    "queue": "There are no queues: a listener takes the functions that it has, or --functions",
    "retries": "Retries are the handler's, @handler(retry=...), or those of Bridge.make_task",
    "retry": "Retries are the handler's, @handler(retry=...), or those of Bridge.make_task",
    "timeout": "A timeout is the handler's, @handler(timeout=...), or that of Bridge.make_task",
}
"""What a command has no option for."""

_COMMANDS = {
    "abort": ("cancel",),
    "add": ("make",),
    "admin": ("dashboard",),
    "create": ("make",),
    "cron": ("series list",),
    "defer": ("put-off",),
    "delay": ("put-off", "make"),
    "delete": ("cancel", "remove", "purge"),
    "dequeue": ("cancel",),
    "enqueue": ("make",),
    "errors": ("failed list",),
    "get": ("show",),
    "health": ("check",),
    "info": ("show", "stats"),
    "inspect": ("show", "list"),
    "jobs": ("list",),
    "kill": ("cancel",),
    "ls": ("list",),
    "monitor": ("top", "dashboard"),
    "pass": ("let-pass",),
    "periodic": ("series list",),
    "ping": ("check",),
    "postpone": ("put-off",),
    "ps": ("top", "list"),
    "requeue": ("run", "retry"),
    "rerun": ("run", "retry"),
    "retry": ("run", "failed retry"),
    "revoke": ("cancel",),
    "rm": ("cancel", "remove", "purge"),
    "schedule": ("make", "series list"),
    "send": ("make",),
    "serve": ("listen", "server", "dashboard"),
    "skip": ("let-pass",),
    "snooze": ("put-off",),
    "start": ("listen", "server"),
    "status": ("stats", "show", "check"),
    "stop": ("cancel", "pause"),
    "submit": ("make",),
    "tasks": ("list",),
    "ui": ("dashboard",),
    "unblock": ("let-pass",),
    "unhold": ("release",),
    "unpause": ("resume",),
    "web": ("dashboard",),
    "work": ("listen",),
    "worker": ("listen",),
    "workers": ("listen",),
}
"""What others call a command, and the names here."""

_WITHOUT_ARGUMENTS = {
    "failed purge": "To cancel one task: expirebridge cancel ID",
    "failed retry": "To run one task again: expirebridge run ID",
    "hold": "Name it: --func mail.send, or --tag customer-9, or --all",
    "list": "To see one task: expirebridge show ID",
    "listen": "The folder of the handlers: --tasks FOLDER",
    "release": "Name it: --func mail.send, or --tag customer-9, or --all",
}
"""What may be meant by an argument of a command that takes none."""

_CHOICE = re.compile(
    r"give either [-\w]+ or [-\w]+|give [-\w]+, [-\w]+ or [-\w]+|requires [-\w]+, not [-\w]+"
)
"""Where a message names parameters without values."""


@contextmanager
def advising() -> Iterator[None]:
    """Add to an error of what was typed what to type instead."""
    try:
        yield
    except _USAGE_ERROR as error:
        _advise(error)
        raise


def in_options(text: str, command: Any) -> str:
    """A message of an operation with the options of the command in place of its parameters."""
    for one in command.params:
        for option in one.opts[:1]:
            if option.startswith("--"):
                text = re.sub(rf"\b{one.name}=(?=[\w'\"\[{{])", f"{option} ", text)
                text = re.sub(rf"\b{one.name}=", option, text)
                text = re.sub(rf"^{one.name}: ", f"{option}: ", text)
                text = _CHOICE.sub(partial(_in_choice, name=one.name, option=option), text)
    names = {one.name for one in command.params}
    if "id" in names and _has_argument(command, "id") and text.startswith("func="):
        text += f". The id comes first: {_usage(command, 'expirebridge ' + command.name)}"
    return text


def _in_choice(choice: re.Match[str], *, name: str, option: str) -> str:
    return re.sub(rf"(?<!-)\b{name}\b", option, choice[0])


def _advise(error: Any) -> None:
    """Give the error of a call that does not parse a message that says what to type."""
    if error.ctx is None:
        return
    if hasattr(error, "option_name") and error.message.startswith("No such option"):
        error.possibilities = None  # Typer's own are written here
        error.message = f"{error.message}. {_of_option(error.option_name, error.ctx)}"
    elif missing := re.match(r"No such command '(.*?)'\.", error.message):
        error.message = f"{missing[0]} {_of_command(missing[1], error.ctx)}"
    elif extra := re.match(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", error.message):
        error.message = _of_extra(extra[1], error.ctx)
    else:
        error.message = error.message.removeprefix("Value error, ")


def _of_option(option: str, ctx: Any) -> str:
    known = {name: one for one in ctx.command.params for name in one.opts if name.startswith("-")}
    word = option.lstrip("-")
    meant = [name for name in _OPTIONS.get(word, ()) if name in known]
    if not meant and _has_argument(ctx.command, word):
        return f"It is an argument: {_usage(ctx.command, ctx.command_path)}"
    if not meant and word == "kwargs" and _has_argument(ctx.command, "args"):
        return f"Give an object for ARGS: {_usage(ctx.command, ctx.command_path)}"
    if not meant and word in _POLICIES:
        return _POLICIES[word]
    meant = meant or difflib.get_close_matches(option, known, n=3)
    if not meant:
        if not _long(known):
            return f"{ctx.command_path} has no options."
        return f"The options of {ctx.command_path} are {_and(_long(known))}."
    shown = [f"{name} {known[name].metavar or ''}".strip() for name in meant]
    return f"Did you mean {', or '.join(shown)}?"


def _of_command(word: str, ctx: Any) -> str:
    here = list(ctx.command.commands)
    paths = {*here, *_inner(ctx.command)}
    meant = [name for name in _COMMANDS.get(word, ()) if name in paths]
    meant = meant or [path for path in _inner(ctx.command) if path.split()[-1] == word]
    meant = meant or difflib.get_close_matches(word.replace("_", "-"), here, n=3)
    if meant:
        return f"Did you mean {' or '.join(f'`{ctx.command_path} {name}`' for name in meant)}?"
    if ctx.parent is None:
        return f"{ctx.command_path} --help lists the commands."
    return f"The commands of {ctx.command_path} are {_and(here)}."


def _of_extra(typed: str, ctx: Any) -> str:
    path = ctx.command_path
    if any(one.param_type_name == "argument" for one in ctx.command.params):
        return f"{typed} is more than {path} takes. Put what has spaces into quotes"
    known = [name for one in ctx.command.params for name in one.opts]
    asked = " ".join(path.split()[-2:])
    advice = _WITHOUT_ARGUMENTS.get(asked) or _WITHOUT_ARGUMENTS.get(path.split()[-1])
    if not advice and _long(known):
        advice = f"Its options are {_and(_long(known))}"
    return f"{path} takes no argument. {advice or ''}".strip()


def _inner(group: Any) -> Sequence[str]:
    """The commands of the groups in a group, as they are typed."""
    return [
        f"{name} {inner}"
        for name, command in group.commands.items()
        for inner in getattr(command, "commands", ())
    ]


def _has_argument(command: Any, name: str) -> bool:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    return any(_singular(one) == name for one in arguments)


def _singular(argument: Any) -> str:
    """The name of one value of an argument: that of `ids` is `id`."""
    name: str = argument.name
    return name.removesuffix("s") if argument.nargs == -1 else name


def _usage(command: Any, path: str) -> str:
    """The command with its arguments: `expirebridge make FUNC ARGS`."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    named = [_singular(one).upper() + "..." * (one.nargs == -1) for one in arguments]
    return " ".join([path, *named])


def _long(options: Iterable[str]) -> list[str]:
    return [option for option in options if option.startswith("--")]


def _and(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
