"""Why there is no server to send to: what those say that know which server it is."""

from redis import exceptions


class NoPrimary(exceptions.ConnectionError):
    """No server is the primary now, as far as can be found out; to ask again may help."""

    unsent = False
    """Whether it is certain that no server got the command."""


class WrongPlace(exceptions.RedisError):
    """Those that were asked are not what the URL says, or do not know the name in it."""


class SlotUnserved(exceptions.ConnectionError):
    """No node of the cluster takes commands for a slot now; nothing was written."""


class SlotIsMoving(exceptions.RedisError):
    """A slot is on its way from one node to another, key by key; nothing was written."""
