"""What events say of keys, and what of it needs a look."""

from collections.abc import Collection

from expirebridge.model.keys import IN_RECORD, InvalidKey, parse_key
from expirebridge.store import commands
from expirebridge.store.commands import Heard, Hint, Steps

News = tuple[bytes, Heard]
"""What an event says: a key's name, and what happened to it."""


def sift(news: Collection[News], home: str = "") -> Steps[list[Hint]]:
    """Leave out what records explain, by far the most, before names are read."""
    unexplained: set[News] = set()
    for heard in Heard:
        if names := [name for name, what in news if what is heard]:
            found = yield from commands.find_unexplained(names, heard)
            unexplained.update((name, heard) for name in found)
    hints = [hint_for(name, heard, home) for name, heard in news if (name, heard) in unexplained]
    return [hint for hint in hints if hint]


def hint_for(name: bytes, heard: Heard, home: str = "") -> Hint | None:
    """The hint for a key's name; None if the key is not of our form.

    `home` is that of its partition, for the id of a key that cannot be a task.
    """
    try:
        key = parse_key(name, home)
        if key is not None and key.args == IN_RECORD:
            # Arguments in a record: of our own tasks only. Without a record, nobody knows them.
            return Hint(name, key.id, key.call, heard, "its arguments, '@', are in no record")
    except InvalidKey as error:
        return Hint.of_invalid(name, error, heard)
    return Hint.of(key, name, heard) if key else None
