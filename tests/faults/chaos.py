"""Chaos: faults in no order that anybody chose, against a server and several listeners."""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable

import redis

from expirebridge.checks import EVENT_FLAGS
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import held_still, kill
from tests.kit.history import Down, Writer, now

KILL_LISTENER = "listeners killed"
KILL_SERVER = "servers killed"
STOP_LISTENER = "listeners stopped"
CUT_CONNECTIONS = "connections cut"
SILENCE = "key events switched off"
ROUND = (KILL_LISTENER, KILL_SERVER, STOP_LISTENER, CUT_CONNECTIONS, SILENCE, KILL_LISTENER)
"""The faults of a round, each time in another order."""

BETWEEN = (0.1, 2.0)
"""Seconds between two faults."""
DOWN = (0.0, 1.5)
"""Seconds that a killed server stays away."""
SILENT = (1.0, 1.5)
"""Seconds for which no key event is sent: edits of timers are then found by claims alone."""


class Chaos:
    """Injects one fault after another, and writes each down that can cost a listener its leases or
    delay the record of an outcome.

    `start` starts a listener. `counts` says how often each fault was injected.
    """

    def __init__(
        self,
        server: EmbeddedServer,
        history: Writer,
        start: Callable[[], subprocess.Popen[bytes]],
        *,
        listeners: int,
        lease: float,
        chance: random.Random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._server = server
        self._history = history
        self._start = start
        self._lease = lease
        self._chance = chance
        self._listeners = [start() for _ in range(listeners)]
        self._inject = {
            KILL_LISTENER: self._kill_listener,
            KILL_SERVER: self._kill_server,
            STOP_LISTENER: self._stop_listener,
            CUT_CONNECTIONS: self._cut_connections,
            SILENCE: self._silence,
        }

    def reign(self, seconds: float) -> None:
        """Inject faults for so long; all in a round at least once."""
        end = time.monotonic() + seconds
        while True:
            for fault in self._chance.sample(ROUND, len(ROUND)):
                time.sleep(self._chance.uniform(*BETWEEN))
                self._inject[fault]()
                self.counts[fault] += 1
            if time.monotonic() >= end:
                return

    def _kill_listener(self) -> None:
        place = self._chance.randrange(len(self._listeners))
        kill(self._listeners[place], self._history)
        self._listeners[place] = self._start()

    def _kill_server(self) -> None:
        at = now()
        self._server.kill()
        time.sleep(self._chance.uniform(*DOWN))
        self._server.start()
        self._history.write(Down(at=at, until=now()))

    def _stop_listener(self) -> None:
        with held_still(self._chance.choice(self._listeners), self._history):
            time.sleep(self._lease * self._chance.uniform(1.1, 2))

    def _cut_connections(self) -> None:
        """Cut all of a kind: a listener has one for each, a customer the first only."""
        with redis.Redis.from_url(self._server.url) as client:
            client.client_kill_filter(_type=self._chance.choice(["normal", "pubsub"]), skipme=True)

    def _silence(self) -> None:
        with redis.Redis.from_url(self._server.url) as client:
            client.config_set("notify-keyspace-events", "")
            time.sleep(self._chance.uniform(*SILENT))
            client.config_set("notify-keyspace-events", EVENT_FLAGS)
