"""The command `expirebridge`: how its process begins.

Nothing here imports Typer, nor does a listener: a quarter of its memory would be what reads the
options. So the process that has read those of `listen` is replaced by one with the same command
line, which finds them in its environment.
"""

import contextlib
import errno
import io
import json
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from expirebridge.cli.ending import (
    BAD_INPUT,
    FAULT,
    INTERRUPTED,
    NOT_POSSIBLE,
    STUCK,
    end_at_sigterm,
    hold_signals,
    leave,
    line_of,
)
from expirebridge.errors import (
    ExpirebridgeError,
    GroupIncomplete,
    GroupNotFound,
    InvalidSetting,
    InvalidTask,
    ListenerStuck,
    TaskExists,
)

_OPTIONS = "EXPIREBRIDGE_LISTEN"
"""The environment variable with the number of a process, and, once it has read them, the options of
`listen` as JSON. That of another process was inherited, and does not count."""


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a write to a full disk raises."""


def run(words: list[str] | None = None, *, name: str | None = None) -> None:
    """Run the command with these words, or those of the command line, and end the process.

    An error becomes one line on stderr and an exit code. `name` is that of the command in its help.
    """
    _set_up_process()
    own, told = f"{os.getpid()} ", os.environ.pop(_OPTIONS, "")
    if words is None and not told.startswith(own) and sys.argv[0] != "-":  # stdin is not read twice
        os.environ[_OPTIONS] = own
    try:
        if told.startswith(own):
            from expirebridge.cli import listening  # noqa: PLC0415 - no other command needs it

            leave(listening.listen(**json.loads(told.removeprefix(own))))
        from expirebridge.cli import application  # noqa: PLC0415 - a listener does not need it

        application.call(sys.argv[1:] if words is None else words, name=name)
    except BaseException as error:
        ending = ending_of(error)
        if ending is None:
            raise
        leave(*ending)


def ending_of(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code of a command that raised this, and what it says on stderr at last.

    None for any other error: such an error ends the process with a traceback.
    """
    match error:
        case ListenerStuck():
            return STUCK, line_of(error)
        case TaskExists() | GroupNotFound() | GroupIncomplete():
            return NOT_POSSIBLE, line_of(error)
        case InvalidTask():
            return BAD_INPUT, line_of(error)
        case InvalidSetting():
            return BAD_INPUT, line_of(as_typed(error))
        case ExpirebridgeError():
            return FAULT, line_of(error)
        case BrokenPipeError():
            return 0, ""
        case OSError() if error.errno in _FULL:
            return FAULT, line_of(OSError(f"the output cannot be written: {error}"))
        case KeyboardInterrupt():
            return INTERRUPTED, ""
        case SystemExit():
            return error.code if isinstance(error.code, int) else FAULT, ""
    return None


def _set_up_process() -> None:
    if sys.argv[1:2] == ["listen"]:
        end_at_sigterm()
    if logging.lastResort is not None:  # what commands print that set up no log
        logging.lastResort.setFormatter(logging.Formatter("expirebridge: %(message)s"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for one that takes ASCII only


def become_listener(options: Mapping[str, Any]) -> None:
    """Replace this process by a listener with these options, if its command line is the command.

    It is not where a program calls the command by itself, as Django's `manage.py` does. If Python
    is not where it was any longer, nothing happens.
    """
    own = f"{os.getpid()} "
    if os.environ.pop(_OPTIONS, "") != own:
        return
    os.environ[_OPTIONS] = own + json.dumps(options)
    hold_signals()
    with contextlib.suppress(OSError):
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    del os.environ[_OPTIONS]
    end_at_sigterm()


def as_typed(error: InvalidSetting) -> InvalidSetting:
    """The error with the name of the option in place of the setting's, if it is of a setting."""
    if not error.setting:
        return error
    option, value = error.setting.replace("_", "-"), error.value
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return InvalidSetting(f"--{option} {text}: {error.fault}")
