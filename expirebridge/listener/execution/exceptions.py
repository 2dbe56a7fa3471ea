"""How a process can fail the attempt that wants it."""


class ProcessFailure(Exception):
    """A process did not do its work; the message is the reason of the attempt's failure."""


class NotStarted(ProcessFailure):
    """It could not be started."""


class HandlerMissing(ProcessFailure):
    """It was started later than the listener, with newer code that lacks the handler."""


class HandlerDiffers(ProcessFailure):
    """It was started later than the listener, with newer code that other arguments fit; the message
    is why these do not.
    """


class ProcessDied(ProcessFailure):
    """It ended while a handler was called in it."""
