"""Connections of a listener break, again and again, while tasks are made and run."""

import random
import time
from functools import partial
from pathlib import Path

import pytest
import redis

from tests.faults.link import Link
from tests.faults.scene import Scene, staged, staged_behind
from tests.faults.stage import ROUNDS, held_still
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.patience import PATIENCE
from tests.kit.processes import until_logged
from tests.kit.proxy import Proxy

KILLED = Fault(
    name="the pub/sub connection is killed",
    injected="`CLIENT KILL TYPE pubsub`, five times, while tasks are made and run",
    promise="nothing is lost or late because of it; "
    "tasks of other clients are found by the scan after it",
)
OVERFLOW = Fault(
    name="a subscriber is too slow",
    injected="a listener is stopped for less than its lease, and its output buffer overflows",
    promise="it subscribes again, and scans",
)
RESET = Fault(
    name="connections are reset between request and reply",
    injected="the replies to three claims, settles, heartbeats and sweeps are swallowed, and the "
    "connection is cut",
    promise="nothing runs twice because of it",
)
SLOW = Fault(
    name="a slow network",
    injected="50 to 200 ms each way, in slices of 700 bytes, with a lease of 3 s",
    promise="tasks run late by a few round trips, and once",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_subscription_is_killed(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history) as scene:
        with scene.stream(chance) as stream:
            for _ in range(5):
                stream.until_more(20 + chance.randrange(20))
                kill_subscription(scene.client)
                # While nobody hears: it is found afterwards.
                scene.make_foreign()
        verdict = scene.judge(KILLED)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}


def kill_subscription(client: redis.Redis) -> None:
    """Kill it, once the listener has one again."""
    deadline = time.monotonic() + PATIENCE
    while not client.client_kill_filter(_type="pubsub"):
        assert time.monotonic() < deadline, "nobody subscribed again"
        time.sleep(0.01)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_subscriber_that_is_too_slow(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    options = {"client-output-buffer-limit": "pubsub 1mb 1mb 1"}
    with staged(binary, folder, history, options=options) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            with held_still(scene.listener, history):
                overflow(scene)
            until_logged("everything works again", folder)
            stream.until_more(50)
            scene.make_foreign()
        verdict = scene.judge(OVERFLOW)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) <= {"retry", "stopped", "stopped before it was settled"}


def overflow(scene: Scene) -> None:
    """Publish to the doorbell, where anyone may, until the server drops its subscriber."""
    doorbell = "expirebridge:doorbell:1"
    # Not larger: Valkey keeps one copy of a long message, and counts it for no subscriber.
    for _ in range(10_000):
        if not scene.client.publish(doorbell, bytes(10_000)):
            return
    raise AssertionError("the server holds 100 MB for a subscriber")


@pytest.mark.parametrize("round", range(ROUNDS))
def test_replies_that_never_arrive(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged_behind(Proxy, binary, folder, history) as (scene, proxy):
        with scene.stream(chance) as stream:
            scripts = ["claim", "settle", "heartbeat", "sweep"]
            for script in chance.sample(scripts, len(scripts)):
                stream.until_more(20)
                proxy.cut_reply_of(script, times=3)
            proxy.until(lambda: proxy.cuts.total() == 3 * len(scripts))
            stream.until_more(20)
        verdict = scene.judge(RESET)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_slow_network(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    way = partial(Link, delay=(0.05, 0.2))
    with staged_behind(way, binary, folder, history, lease=3.0) as (scene, _):
        with scene.stream(chance) as stream:
            stream.until_more(150)
        verdict = scene.judge(SLOW)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}
