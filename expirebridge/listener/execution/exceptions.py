"""Exceptions of execution: a handler that is not called, runs too long, or loses its process."""

HELD_UP = "its listener was held up, for longer than its lease"
WITHDRAWN = "its listener's event loop was blocked"
"""Reasons of attempts whose handlers are not called."""


class StartRefused(Exception):
    """The handler must not be called in this listener any more; the message is the reason."""


class Withdrawn(StartRefused):
    """The heartbeat's thread gave the task back, and has recorded that."""


class TimedOut(Exception):
    """The handler reached its timeout."""


class DecodingFailed(Exception):
    """The codec did not decode the arguments; its error is the cause, the message the reason."""


class ProcessFailure(Exception):
    """The handler's process failed; the message is the reason of the attempt's failure."""


class ProcessNotStarted(ProcessFailure):
    """No process could be started."""


class HandlerMissing(ProcessFailure):
    """The process runs newer code than its listener, without this handler."""


class HandlerDiffers(ProcessFailure):
    """The process runs newer code than its listener, whose handler takes other arguments.

    The message is why these do not fit.
    """


class ProcessDied(ProcessFailure):
    """The process ended during the call."""


class RemoteTraceback(Exception):
    """Traceback of an error that a handler raised in another process; set as the error's cause."""
