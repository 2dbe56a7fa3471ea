"""The ear: hears what plain commands did to keys, as a listener's subscription does."""

import redis

from expirebridge.errors import ServerUnreachable
from expirebridge.listener.partition.key_events import HEARD
from expirebridge.store.client import Database
from expirebridge.store.commands import Heard

EDITED = "expire"
"""The event of every key whose end is set: to move the clock causes one for each key."""
PATIENCE = 5.0


class Ear:
    """Keeps what was heard until somebody takes it."""

    def __init__(self, client: redis.Redis, database: Database) -> None:
        self._channels = {database.events(kind).encode(): heard for kind, heard in HEARD.items()}
        self._edits = database.events(EDITED).encode()
        self._heard: dict[bytes, Heard] = {}
        self._pubsub = client.pubsub()  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(*self._channels)
        self._read()

    def take(self) -> dict[bytes, Heard]:
        """What was last heard of each key since the last time; all of it has arrived."""
        self._read()
        heard, self._heard = self._heard, {}
        return heard

    def mute(self) -> None:
        """Hear no edits from now on."""
        self._pubsub.unsubscribe(self._edits)
        self._read()

    def unmute(self) -> None:
        """Hear edits again, from before the next time that something is taken."""
        self._pubsub.subscribe(self._edits)

    def close(self) -> None:
        """End the subscription."""
        self._pubsub.close()

    def _read(self) -> None:
        """Read what has arrived. The server answers the ping after all that came before."""
        self._pubsub.ping()
        while message := self._pubsub.get_message(timeout=PATIENCE):
            if message["type"] == "pong":
                return
            if message["type"] == "message" and b":?" in message["data"]:
                name = message["data"]
                self._heard.pop(name, None)
                self._heard[name] = self._channels[message["channel"]]
        raise ServerUnreachable(f"the server did not answer a PING within {PATIENCE:g} s")
