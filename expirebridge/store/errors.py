"""Translates the errors of the redis client into ours, which say what happened and what to do."""

import re

from redis import exceptions

from expirebridge import errors
from expirebridge.store.tls import advice, is_of_tls, is_plain_text

# Why there is no server to send to: what those say that know which server it is.


class NoPrimary(exceptions.ConnectionError):
    """No server is known to be the primary now; asking again may help."""

    unsent = False
    """True if it is certain that no server got the command."""


class WrongPlace(exceptions.RedisError):
    """The servers are of another kind than the URL says, or do not know the name in it."""


class SlotNotServed(exceptions.ConnectionError):
    """No node of the cluster takes commands for a slot now; nothing was written."""


class SlotIsMoving(exceptions.RedisError):
    """A slot is on its way from one node to another, key by key; nothing was written."""


_FORMAT = "EXPIREBRIDGE_FORMAT "
_PARTITIONS = "EXPIREBRIDGE_PARTITIONS "
_UNMARKED = "EXPIREBRIDGE_UNMARKED "
_MOVE = "EXPIREBRIDGE_MOVE "
_LIMITS = "EXPIREBRIDGE_LIMITS "
# Commands of a server with data, which a sentinel lacks.
_NEEDED = ("SELECT", "EVALSHA", "EVAL")
# Refusals of one node of a cluster: another database, and names whose slots are other nodes'.
_OF_A_CLUSTER = ("SELECT is not allowed in cluster mode", "a non local key", "same slot")
# How Redis and Valkey refuse a command inside of a script.
_NO_RIGHT = ("The user executing the script can't", "ACL failure in script")
# How they refuse a key, which they do not name.
_NO_KEY = r"access .*\bkeys?\b"
# The answer of a node for every slot; for one slot that lacks a node, there is another text.
_NODE_IS_DOWN = "The cluster is down"


class CountUnknown(errors.ServerError):
    """A partition does not know how many there are: nothing was read or written there.

    No fault: it is caught where partitions are chosen, which then asks the others.
    """


def out_of_memory() -> exceptions.ConnectionError:
    """The error for a reply that was lost, since this process has no memory for it.

    A handler may take all memory, and give it back as it fails: no reason for a listener to end.
    """
    return exceptions.ConnectionError("this process has no memory left to read it")


def translated(error: exceptions.RedisError, *, answered: bool = False) -> errors.ServerError:
    """The error of ours that says what happened, with the client's own as its cause.

    If the server has `answered` before, its URL is right, and that is not doubted.
    """
    ours = _ours(error, str(error), answered=answered)
    ours.__cause__ = error
    return ours


def is_about_keys(refusal: errors.NotPermitted) -> bool:
    """True if the refusal is about a key, not a command or a channel."""
    return re.search(_NO_KEY, str(refusal)) is not None


def is_within_script(refusal: errors.NotPermitted) -> bool:
    """True if the refusal is about a command within a script, not about running it."""
    return any(words in str(refusal) for words in _NO_RIGHT)


def _of_place(error: exceptions.RedisError, text: str) -> errors.ServerError | None:
    """The error of ours if no server was found, or one of another kind than the URL says."""
    if isinstance(error, NoPrimary):
        unreachable = errors.ServerUnreachable(f"{text}{advice(text)}")
        unreachable.nothing_written = error.unsent
        return unreachable
    if isinstance(error, WrongPlace):
        return errors.ServerUnsuitable(text)
    return _of_cluster(error, text)


def _of_cluster(error: exceptions.RedisError, text: str) -> errors.ServerError | None:
    """The error of ours if a cluster serves the slot elsewhere, or does not serve it now."""
    if isinstance(error, SlotIsMoving):
        return errors.SlotMoving(text)
    if isinstance(error, SlotNotServed | exceptions.ClusterDownError):
        unserved = errors.SlotUnserved(f"the cluster does not serve the slot now: {text}")
        unserved.of_node = _NODE_IS_DOWN in text
        return unserved
    if isinstance(error, exceptions.MovedError):
        return errors.ServerUnsuitable(
            f"slot {error.slot_id} is served by {error.host}:{error.port}, another node of the "
            "cluster: a URL that begins with redis+cluster:// leads there, and follows it"
        )
    if isinstance(error, exceptions.AskError):
        return errors.SlotMoving(
            f"slot {error.slot_id} is being moved to {error.host}:{error.port} key by key, and "
            "nothing was written; if nobody is doing that any more, finish it: `redis-cli "
            "--cluster fix HOST:PORT`"
        )
    if any(words in text for words in _OF_A_CLUSTER):
        return errors.ServerUnsuitable(
            "this is a node of a cluster, and refuses what concerns several slots, or another "
            f"database than 0: {text}; give the cluster's URL: redis+cluster://HOST:PORT, or "
            "rediss+cluster:// with TLS"
        )
    return None


def _of_data(text: str) -> errors.ServerError | None:
    """The error of ours if the server has no such database, or is none for data."""
    if "DB index is out of range" in text:
        return errors.ServerUnsuitable(
            f"the server has no database of this number: {text}; it says how many it has, by "
            "`databases`, and by `cluster-databases` in a cluster"
        )
    if "unknown command" in text and any(word in text for word in _NEEDED):
        return errors.ServerUnsuitable(
            f"this is no server for data: {text}; is it a sentinel? Then begin the URL with "
            "redis+sentinel:// and put its name for the primary behind the address: "
            "redis+sentinel://HOST:26379/NAME/1"
        )
    return None


def _ours(error: exceptions.RedisError, text: str, *, answered: bool) -> errors.ServerError:
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError):
        return errors.ServerError(f"the server refused the login: {text}")
    if ours := _of_place(error, text) or _of_data(text):
        return ours
    if isinstance(error, exceptions.ConnectionError) and (is_plain_text(error) or is_of_tls(text)):
        return errors.ServerUnreachable(f"no TLS connection to the server: {text}{advice(text)}")
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
        text = text.removesuffix(".")
        hint, doubt = ("", "") if answered else (advice(text), ", and is its URL right")
        return errors.ServerUnreachable(
            f"no answer from the server: {text}{hint}; is it running{doubt}?"
        )
    if isinstance(error, exceptions.NoPermissionError) or any(w in text for w in _NO_RIGHT):
        return errors.NotPermitted(
            f"the login lacks a right: {text}; `expirebridge acl` prints those that are needed"
        )
    # An error inside of a script begins with the script's name, not with its own code.
    if "READONLY" in text or isinstance(error, exceptions.ReadOnlyError):
        return errors.ServerReadOnly("the server is a read-only replica: connect to the primary")
    if "OOM " in text or isinstance(error, exceptions.OutOfMemoryError):
        return errors.ServerOutOfMemory(
            f"the server is out of memory, and nothing was written: {text}"
        )
    if ours := _of_format(text):
        return ours
    if "user_script" in text or "running script" in text:
        return errors.ScriptFailed(f"a script failed on what it found in the database: {text}")
    return errors.ServerError(f"the server answered: {text}")


def _of_format(text: str) -> errors.ServerError | None:
    """The error of ours if a script refused what the database is."""
    if _FORMAT in text:
        return errors.FormatTooNew(_too_new(text))
    if _PARTITIONS in text:
        count, asked = _words(text, _PARTITIONS)[:2]
        return errors.PartitionsDiffer(int(count), int(asked.rstrip(":")))
    if _UNMARKED in text:
        return CountUnknown(f"the partition does not know how many there are: {text}")
    if _LIMITS in text:
        return errors.LimitsNeedOnePartition(int(_words(text, _LIMITS)[0]))
    if _MOVE in text:
        return errors.MoveRefused(_reason(text))
    return None


def _too_new(text: str) -> str:
    written, known = _words(text, _FORMAT)[:2]
    return (
        f"the database has format {written}, but this expirebridge knows only up to {known}: "
        "upgrade it, or use another database"
    )


def _reason(text: str) -> str:
    # A server adds to a script's own error where that was raised.
    return text.split(_MOVE, 1)[1].partition(" script: ")[0].rstrip(", ")


def _words(text: str, code: str) -> list[str]:
    """The words after the code of an error."""
    return text.split(code, 1)[1].split()
