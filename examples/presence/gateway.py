"""A gateway with many connections, each of which sends keepalives; some fall silent.

It watches each connection, hands every keepalive on as one plain PEXPIRE, and ends when exactly
those that fell silent are marked as offline. Server and listener are started for the occasion.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer

TASKS = Path(__file__).parent / "tasks"
AT_ONCE = 100
"""Keepalives that the gateway sends in one go."""
ARRIVALS = 5
"""Periods over which the connections arrive."""


class Gateway:
    """Connections, and what is known of them."""

    def __init__(self, bridge: Bridge, url: str, application: redis.Redis, silence: float) -> None:
        self.bridge = bridge
        self.server = redis.Redis.from_url(url)
        self.application = application
        self.silence = silence
        self.keys: dict[str, bytes] = {}
        self.last_beat: dict[str, float] = {}
        self.beats = 0
        self.back: set[str] = set()
        """Those that were taken for lost, until they are heard of once more."""
        self.returned = 0

    def connect(self, connection: str) -> None:
        """A connection is there: watch it from now on."""
        # Online first: if it is silent from now on, it is taken out again.
        self.mark_online(connection)
        task = self.bridge.watch(connection, "connections.offline", [connection], ttl=self.silence)
        self.keys[connection] = task.key
        self.last_beat[connection] = time.time()

    def mark_online(self, connection: str) -> None:
        """What `connections.offline` does, undone."""
        with self.application.pipeline() as both:
            both.sadd("online", connection)
            both.zrem("offline", connection)
            both.execute()

    def beat(self, connections: list[str]) -> None:
        """Keepalives came: what any client in any language would do, and without expirebridge."""
        with self.server.pipeline(transaction=False) as pipeline:
            for connection in connections:
                pipeline.pexpire(self.keys[connection], round(self.silence * 1000))
            answers = pipeline.execute()
        now = time.time()
        self.beats += len(connections)
        for connection, answer in zip(connections, answers, strict=True):
            self.last_beat[connection] = now
            if not answer:  # its key is gone: it was taken for lost, and is back
                self.returned += 1
                self.back.add(connection)
                self.connect(connection)
            elif connection in self.back:
                # Its handler may have been at work when it came back, and have had the last word.
                self.back.discard(connection)
                self.mark_online(connection)

    def offline(self) -> dict[str, float]:
        """The connections that were marked, and when."""
        found: Any = self.application.zrange("offline", 0, -1, withscores=True)
        return {connection.decode(): at for connection, at in found}


def spread(connections: list[str], every: float) -> Iterator[list[str]]:
    """Hand out all connections in groups, evenly over a period."""
    began = time.monotonic()
    for at in range(0, len(connections), AT_ONCE):
        due = began + every * at / len(connections)
        time.sleep(max(due - time.monotonic(), 0))
        yield connections[at : at + AT_ONCE]
    time.sleep(max(began + every - time.monotonic(), 0))


@contextmanager
def listener(url: str, application_url: str) -> Iterator[None]:
    """A listener, as it would run beside the gateway."""
    command = [sys.executable, "-m", "expirebridge", "listen", "--tasks", str(TASKS), "--url", url]
    surroundings = os.environ | {"PRESENCE_URL": application_url}
    process = subprocess.Popen(command, env=surroundings, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def percentile(values: list[float], share: int) -> float:
    """So many percent of the values are not above it."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def simulate(gateway: Gateway, connections: list[str], lost: set[str], every: float) -> None:
    """Connect all, lose some, and go on until these are offline and all others are not."""
    before = gateway.server.info("memory")["used_memory"]
    for period in range(ARRIVALS):
        for group in spread(list(gateway.keys), every / 2):
            gateway.beat(group)
        for group in spread(connections[period::ARRIVALS], every / 2):
            for connection in group:
                gateway.connect(connection)
    used = gateway.server.info("memory")["used_memory"] - before
    print(f"{len(connections):,} connections, {used / len(connections):,.0f} bytes each")
    living = [connection for connection in connections if connection not in lost]
    began, gateway.beats = time.monotonic(), 0
    while set(gateway.offline()) != lost:
        for group in spread(living, every):
            gateway.beat(group)
    print(f"{gateway.beats / (time.monotonic() - began):,.0f} keepalives a second")


def main() -> None:
    """Run the gateway with what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=100_000)
    parser.add_argument("--lost", type=int, default=1000, help="connections that fall silent")
    parser.add_argument("--every", type=float, default=30, help="seconds between keepalives")
    parser.add_argument("--silence", type=float, default=60, help="seconds until it is offline")
    options = parser.parse_args()
    connections = [f"conn:{number}" for number in range(options.connections)]
    lost = set(connections[:: max(len(connections) // options.lost, 1)][: options.lost])
    with EmbeddedServer() as server, listener(server.url, f"redis://127.0.0.1:{server.port}/2"):
        application = redis.Redis(port=server.port, db=2)
        with Bridge(server.url) as bridge:
            gateway = Gateway(bridge, server.url, application, options.silence)
            simulate(gateway, connections, lost, options.every)
        marked = gateway.offline()
        online = application.scard("online")
        late = [marked[one] - gateway.last_beat[one] - options.silence for one in lost]
        print(f"{len(marked):,} lost connections are offline, {online:,} others are online")
        print(f"marked after their time: p50 {percentile(late, 50):.3f} s, "
              f"p99 {percentile(late, 99):.3f} s; {gateway.returned} were back")  # fmt: skip


if __name__ == "__main__":
    main()
