"""The command `expirebridge`: how its process begins.

Nothing here imports Typer, nor does a listener: a quarter of its memory would be what reads the
options. So the process that has read those of `listen` is replaced by one with the same command
line, which finds them in its environment.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from expirebridge.cli.ending import BAD_INPUT, FAULT, NOT_POSSIBLE, STUCK, end, leave
from expirebridge.errors import (
    ExpirebridgeError,
    GroupNotFound,
    InvalidSetting,
    InvalidTask,
    ListenerStuck,
    TaskExists,
)

_OPTIONS = "EXPIREBRIDGE_LISTEN"
"""The environment variable with the options of `listen`, as JSON, that another process has read."""


def run(words: list[str] | None = None, *, name: str | None = None) -> None:
    """Run the command with these words, or those of the command line, and end the process.

    An error becomes one line on stderr and an exit code. `name` is that of the command in its help.
    """
    if logging.lastResort is not None:  # what commands print that set up no log
        logging.lastResort.setFormatter(logging.Formatter("expirebridge: %(message)s"))
    options = os.environ.pop(_OPTIONS, None)
    try:
        if options is not None:
            from expirebridge.cli import listening  # noqa: PLC0415 - no other command needs it

            leave(listening.listen(**json.loads(options)))
        from expirebridge.cli import application  # noqa: PLC0415 - a listener does not need it

        application.call(sys.argv[1:] if words is None else words, name=name)
    except ListenerStuck as error:
        end(error, STUCK)
    except (TaskExists, GroupNotFound) as error:
        end(error, NOT_POSSIBLE)
    except InvalidTask as error:
        end(error, BAD_INPUT)
    except InvalidSetting as error:
        end(as_typed(error), BAD_INPUT)
    except ExpirebridgeError as error:
        end(error, FAULT)
    except BrokenPipeError:
        end(None, 0)
    except SystemExit as exit:
        leave(exit.code if isinstance(exit.code, int) else FAULT)


def become_listener(options: Mapping[str, Any]) -> None:
    """Replace this process by a listener with these options, if it was started as one.

    It was not where a program calls the command by itself, as Django's `manage.py` does.
    """
    if sys.argv[1:2] == ["listen"]:
        os.environ[_OPTIONS] = json.dumps(options)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def as_typed(error: InvalidSetting) -> InvalidSetting:
    """The error with the name of the option in place of the setting's, if it is of a setting."""
    if not error.setting:
        return error
    option, value = error.setting.replace("_", "-"), error.value
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return InvalidSetting(f"--{option} {text}: {error.fault}")
