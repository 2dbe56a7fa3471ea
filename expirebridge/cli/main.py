"""The command `expirebridge`: how its process begins."""

import logging
import sys

from expirebridge.cli.ending import BAD_INPUT, FAULT, NOT_POSSIBLE, STUCK, end, leave
from expirebridge.errors import (
    ExpirebridgeError,
    GroupNotFound,
    InvalidSetting,
    InvalidTask,
    ListenerStuck,
    TaskExists,
)


def run(words: list[str] | None = None, *, name: str | None = None) -> None:
    """Run the command with these words, or those of the command line, and end the process.

    An error becomes one line on stderr and an exit code. `name` is that of the command in its help.
    """
    if logging.lastResort is not None:  # what commands print that set up no log
        logging.lastResort.setFormatter(logging.Formatter("expirebridge: %(message)s"))
    try:
        from expirebridge.cli import application  # noqa: PLC0415 - see its commands

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


def as_typed(error: InvalidSetting) -> InvalidSetting:
    """The error with the name of the option in place of the setting's, if it is of a setting."""
    if not error.setting:
        return error
    option, value = error.setting.replace("_", "-"), error.value
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return InvalidSetting(f"--{option} {text}: {error.fault}")
