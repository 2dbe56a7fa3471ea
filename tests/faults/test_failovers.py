"""Sentinels make a replica the primary, while a listener and a producer work."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, State
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.task.task import to_ms
from tests.faults.stage import (
    ROUNDS,
    judge,
    make,
    recorded_listener,
    until_finished,
)
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.checker import Verdict
from tests.kit.history import Ended, Forgot, Made, Writer, now, read
from tests.kit.patience import PATIENCE
from tests.kit.processes import log_of, until_logged
from tests.kit.sentinels import Sentinels

LEASE = 3.0
"""Seconds: a listener asks for the primary once a second, and its leases must outlast that."""
ASKED_WITHIN = 2000
"""Milliseconds after which the producer has asked for the primary, too."""
HELD = 4.0
"""Seconds that the tasks run which are at work when the primary changes."""

DIES = Fault(
    name="sentinels: the primary is killed",
    injected="`kill -9` of the primary in a stream of tasks; the sentinels make its replica the "
    "primary",
    promise="what reached the replica is kept, and runs; nobody reconnects by hand",
)
ORDERLY = Fault(
    name="sentinels: an orderly failover",
    injected="`SENTINEL FAILOVER` in a stream of tasks; the old primary takes writes until it "
    "learns of it",
    promise="what was written to the old primary after the change is lost, for about a second; all "
    "else runs",
)
SUPERSEDED = Fault(
    name="sentinels: a superseded primary goes on",
    injected="the sentinels, and they alone, cannot reach the primary, and make its replica the "
    "primary; both take writes",
    promise="listener and producers follow the majority of the sentinels; "
    "no task fails because of it",
)


@dataclass(frozen=True, slots=True)
class Watched:
    """What a test of failovers works with."""

    sentinels: Sentinels
    folder: Path
    history: Writer
    stream: Stream

    def until_in_step(self) -> int:
        """Wait until the replica has all that was written; return when that was begun, in ms."""
        begun = now()
        self.sentinels.until_in_step()
        return begun

    def hold(self, count: int) -> list[str]:
        """Let so many tasks run while the primary changes, and return their ids."""
        with Bridge(self.sentinels.url) as bridge:
            tasks = make(bridge, self.history, [("recorded.work", [HELD, 0])] * count)
            wanted = {task.id for task in tasks}
            while bridge.count().running < count:
                pass
        return sorted(wanted)

    def until_followed(self) -> int:
        """Wait until the listener is on the new primary, and return since when it was, in ms."""
        until_logged("the primary is now", self.folder)
        lines = map(json.loads, log_of(self.folder).splitlines())
        [at] = [line["time"] for line in lines if line["event"] == "failed over"]
        return to_ms(datetime.fromisoformat(at))


@contextmanager
def watched(
    binary: Path, folder: Path, history: Writer, chance: random.Random
) -> Iterator[Watched]:
    """Start servers, sentinels, a listener and a producer."""
    with (
        Sentinels(binary) as sentinels,
        recorded_listener(sentinels.url, folder, history, "--log-format", "json", lease=LEASE),
        Stream(sentinels.url, history, chance=chance) as stream,
    ):
        stream.until_more(50 + chance.randrange(50))
        yield Watched(sentinels, folder, history, stream)


def fail_over(
    fault: Fault, watched: Watched, inject: Callable[[], None], *, is_gone: bool
) -> Verdict:
    """Change the primary, with tasks at work, and judge what became of all.

    `is_gone` is whether the old primary is gone at once: what is acknowledged afterwards is kept.
    """
    sentinels, history = watched.sentinels, watched.history
    held = watched.hold(10)
    known = watched.until_in_step()
    inject()
    gone = now()
    followed = watched.until_followed()
    history.write(Forgot(at=known, until=gone if is_gone else followed))
    if not is_gone:
        # The producer asks the sentinels by itself, once a second.
        history.write(Forgot(at=followed, until=followed + ASKED_WITHIN))
    watched.stream.until_more(300)
    watched.stream.stop()
    with Bridge(sentinels.url) as bridge:
        until_finished(bridge)
        ended = {each.id for each in read(history.folder)
                 if isinstance(each, Ended) and each.at > followed}  # fmt: skip
        for task in map(bridge.get, held):
            # An outcome that was recorded by the old primary alone is one that got lost.
            if task is not None and task.id in ended:
                assert (task.state, task.lapses) == (State.SUCCEEDED, 0), task
        return judge(fault, sentinels.servers[0], bridge, history, lease=LEASE)


def until_only_beating(sentinels: Sentinels, server: EmbeddedServer, other: EmbeddedServer) -> None:
    """Wait until a listener has beaten here for a lease, and not on the other server."""
    end = time.monotonic() + PATIENCE
    while latest_beat(sentinels, server) <= latest_beat(sentinels, other) + LEASE * 1000:
        assert time.monotonic() < end, "listeners beat on both servers"
        time.sleep(0.1)


def latest_beat(sentinels: Sentinels, server: EmbeddedServer) -> float:
    """When a listener last beat on this server, in ms."""
    with sentinels.client(server) as client:
        scores: Any = client.zrange("expirebridge:listeners", -1, -1, withscores=True)
        return float(scores[0][1])


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_primary_is_killed(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with watched(binary, folder, history, chance) as scene:
        first, second = scene.sentinels.servers
        verdict = fail_over(DIES, scene, first.kill, is_gone=True)
        assert scene.sentinels.primary is second
    assert verdict.sound, str(verdict)
    # What was acknowledged in the milliseconds between the comparison and the kill.
    assert verdict.forgotten < 20, str(verdict)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_an_orderly_failover(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with watched(binary, folder, history, chance) as scene:
        verdict = fail_over(ORDERLY, scene, scene.sentinels.fail_over, is_gone=False)
    assert verdict.sound, str(verdict)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_superseded_primary_goes_on(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with watched(binary, folder, history, chance) as scene:
        sentinels = scene.sentinels
        first, second = sentinels.servers
        verdict = fail_over(SUPERSEDED, scene, lambda: sentinels.cut_off(first), is_gone=False)
        with (
            Bridge(sentinels.server_url(first)) as old,
            Bridge(sentinels.server_url(second)) as new,
        ):
            made = [each.id for each in read(history.folder) if isinstance(each, Made)]
            missing = [id for id in made if new.get(id) is None]
            # Whatever the new primary does not know went to the old one.
            assert all(old.get(id) is not None for id in missing)
            assert len(missing) == verdict.forgotten
            # And nobody goes on there, nor beats.
            assert old.get(made[-1]) is None
        until_only_beating(sentinels, second, first)
    assert verdict.sound, str(verdict)
