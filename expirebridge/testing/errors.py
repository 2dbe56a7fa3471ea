"""Errors of the testing kit, beside the AssertionErrors of its assertions."""

from expirebridge.errors import ExpirebridgeError


class TravelError(ExpirebridgeError):
    """Time cannot be moved like this."""


class NeverIdle(TravelError):
    """More attempts were due than a test allows: some task repeats without end."""


class TaskFailed(TravelError):
    """A task failed although its handler raised nothing; with `raising=True`."""
