"""The message on the doorbell's channel that says that rows of a ledger were committed."""

from collections.abc import Collection

from expirebridge.task.keys import is_id

MOST_IDS = 20
"""The most ids in one message."""
_WORD = "ledger"
_MOST_BYTES = 3_000


def commit_message(ids: Collection[str] = ()) -> str:
    """The message about new rows with these ids; without ids, that there are rows to look for."""
    return " ".join([_WORD, *ids])


def ids_committed(message: bytes) -> list[str]:
    """The ids of new rows that such a message names; none if it says only that there are rows.

    Anyone may publish: of a message that names anything but a few ids, only that counts.
    """
    if len(message) > _MOST_BYTES:
        return []
    word, *words = message.decode(errors="replace").split()
    ids = list(dict.fromkeys(words)) if word == _WORD else []
    return ids if len(ids) <= MOST_IDS and all(map(is_id, ids)) else []
