"""Every error that expirebridge raises.

ExpirebridgeError
├── InvalidTask          what a producer asked for cannot be a task (also a ValueError)
├── InvalidSetting       a setting has a value that it cannot have (also a ValueError)
├── TaskExists           the id belongs to a task that has not finished
│   └── TaskDiffers          and extending was asked for, but it is another call
├── HandlersError        the handlers' folder cannot be used
├── EmbeddedServerError  the embedded server did not start
└── ServerError          the Redis server
    ├── ServerUnreachable    no connection, or it broke and did not come back
    ├── ServerReadOnly       a replica: it takes no writes
    ├── NotPermitted         the login lacks a right
    ├── ServerOutOfMemory    `maxmemory` is reached: nothing was written
    ├── ServerUnsuitable     lacks what expirebridge cannot do without
    ├── ScriptFailed         a script met data that it could not handle
    └── FormatTooNew         a newer expirebridge wrote this database

What a handler may raise to steer its own task (`Retry`, `Discard`) is in `retry.py`.
"""


class ExpirebridgeError(Exception):
    """The base of every error that expirebridge raises."""


class InvalidTask(ExpirebridgeError, ValueError):
    """A task was refused before anything was sent; the message names what was wrong."""


class InvalidSetting(ExpirebridgeError, ValueError):
    """A setting was refused where it entered; the message names it."""


class TaskExists(ExpirebridgeError):
    """The id belongs to a task that is pending, paused or running; nothing was changed."""

    def __init__(self, id: str, state: str) -> None:
        super().__init__(
            f"task {id!r} exists and is {state}: pass if_exists='keep', 'replace' or 'extend', "
            "or choose another id"
        )
        self.id = id
        self.state = state


class TaskDiffers(TaskExists):
    """The task that was to be extended has another function or other arguments."""

    def __init__(self, id: str, state: str, call: str) -> None:
        super().__init__(id, state)
        self.args = (
            f"task {id!r} is {state}, but is {call}: cancel it, or replace it by make_task with "
            "if_exists='replace'",
        )


class HandlersError(ExpirebridgeError):
    """The handlers' folder is missing, or a module in it does not import."""


class EmbeddedServerError(ExpirebridgeError):
    """The embedded server could not be started; the message holds its own last words."""


class ServerError(ExpirebridgeError):
    """The Redis server refused a command for a reason that none of the kinds below names."""


class ServerUnreachable(ServerError):
    """No answer came from the server. A call that raised this may or may not have taken effect."""


class ServerReadOnly(ServerError):
    """The server is a replica, or was made one: it takes no writes. Connect to the primary."""


class NotPermitted(ServerError):
    """The login has no right to do this. `expirebridge acl` prints the rights that are needed."""


class ServerOutOfMemory(ServerError):
    """The server reached `maxmemory`: the call was refused whole, and nothing was written."""


class ServerUnsuitable(ServerError):
    """The server lacks something that expirebridge cannot do without."""


class ScriptFailed(ServerError):
    """A script met data that it could not handle: another client changed expirebridge's keys."""


class FormatTooNew(ServerError):
    """The database was written by a newer expirebridge, whose format this one does not know."""
