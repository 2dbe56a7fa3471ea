"""The server is set otherwise while tasks are made and run."""

import random
from pathlib import Path

import pytest

from tests.faults.scene import staged
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.processes import until_logged

SILENCE = "notify-keyspace-events is '', without Exg"
NO_EVENTS = Fault(
    name="key events are switched off and on again",
    injected="`CONFIG SET notify-keyspace-events` while tasks are made, put off and run",
    promise="tasks run on time by the clock, and those that are put off by a plain `PEXPIREAT` by "
    "that; those of other clients that live for two leases and a scan are found; "
    "this is logged once",
)
EVICTION = Fault(
    name="eviction is switched on",
    injected="`CONFIG SET maxmemory-policy allkeys-lru`, with memory to spare",
    promise="each listener raises an alarm within a lease, once, and goes on",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_key_events_are_switched_off_and_on_again(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history) as scene:
        with scene.stream(chance, puts_off=True) as stream:
            stream.until_more(20 + chance.randrange(30))
            scene.client.config_set("notify-keyspace-events", "")
            before = stream.put_off
            stream.until_more(50)
            # Nothing reports these: the claim finds that their timers still tick.
            assert stream.put_off > before
            # By a scan: the one that may be under way has passed the key.
            scene.make_foreign()
            until_logged(SILENCE, folder)
        scene.client.config_set("notify-keyspace-events", "Exg")
        until_logged("notify-keyspace-events gxE", folder)
        scene.make_foreign()
        verdict = scene.judge(NO_EVENTS)
    assert verdict.sound, str(verdict)
    assert scene.log().count(SILENCE) == 1
    assert set(verdict.twice) == {"retry"}


@pytest.mark.parametrize("round", range(ROUNDS))
def test_eviction_is_switched_on(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    alarm = "the server will delete tasks when memory runs out"
    with staged(binary, folder, history) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(20 + chance.randrange(30))
            scene.client.config_set("maxmemory", "500mb")
            scene.client.config_set("maxmemory-policy", "allkeys-lru")
            until_logged(alarm, folder)
            scene.client.config_set("maxmemory-policy", "noeviction")
            until_logged("the server changed: noeviction", folder)
        verdict = scene.judge(EVICTION)
    assert verdict.sound, str(verdict)
    log = scene.log()
    assert (log.count(alarm), log.count("CRITICAL")) == (1, 1), log
