"""Listeners, producers and the server are killed while a group is made and runs.

`GROUP_MEMBERS=100000` makes so many members in the test of listeners, and prints what came of it.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, Group, GroupState, State, Then
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.errors import GroupError, ServerError
from expirebridge.task.task import to_ms
from tests.faults.scene import staged
from tests.faults.stage import ROUNDS, Listeners, judge, kill, recorded_listener, until
from tests.faults.table import Fault
from tests.kit.checker import Verdict
from tests.kit.history import Ended, Made, Started, Writer, now, read
from tests.kit.processes import ROOT
from tests.kit.sentinels import Sentinels

pytestmark = pytest.mark.timeout(1800)

MEMBERS = int(os.environ.get("GROUP_MEMBERS", "200"))
"""Of the group in whose midst listeners are killed."""
IS_LARGE = MEMBERS > 10_000
WORK = 0.0 if IS_LARGE else 0.1
CONCURRENCY = 100 if IS_LARGE else 4
"""Of each of four listeners, so that a group takes a few seconds."""
LEASE = 5.0 if IS_LARGE else 2.0
LONG_LEASE = 5.0
"""Where no listener is killed: it may be starved for a second."""
WITHIN = 120.0 + MEMBERS / 50
KILLS = 20 if IS_LARGE else 3
OF_PRODUCERS = 500
"""Members that a producer makes."""
OF_A_STEP = 20
ACROSS = 10_000
"""Members that are made across a failover, which takes a second or two."""

LISTENERS = Fault(
    name="listeners are killed while a group runs",
    injected=f"`kill -9` of one of four listeners, again and again, while {MEMBERS:,} members "
    "run, a tenth of which raise once",
    promise="the follow-up is due once, after the end of the last member",
)
PRODUCERS = Fault(
    name="producers are killed while they make a group",
    injected=f"`kill -9` of a process in the midst of `make_group` with {OF_PRODUCERS:,} members, "
    "after any of them; others repeat the call, while members run",
    promise="each member is made once; the follow-up is due once, after the end of the last member",
)
SERVER = Fault(
    name="the server is killed between the steps of a group",
    injected="`kill -9` of the server, and a restart, before and after the group is closed, while "
    "its members run",
    promise="the follow-up is due once, after the end of the last member",
)


def make(
    bridge: Bridge, count: int, *, work: float = 0.0, raises: int = 0, close: bool = True
) -> None:
    """Make the group; of `raises` members, one raises once."""
    then = Then("recorded.work", [0, 0], retry=[])
    bridge.make_group("g", members(count, work=work, raises=raises), then=then, close=close)


def members(count: int, *, work: float = 0.0, raises: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "func": "recorded.work",
            "args": [work, int(raises > 0 and number % raises == 0)],
            "delay": 0,
            "retry": [0.05],
        }
        for number in range(count)
    ]


def has_ended(bridge: Bridge, count: int) -> bool:
    """Whether so many members have ended."""
    group = bridge.get_group("g")
    return group is not None and group.total - group.left >= count


def until_followed(bridge: Bridge, *, within: float = WITHIN) -> Group:
    """Wait until the follow-up has ended, or the time is over; returns the group."""

    def is_over() -> bool:
        follow_up = bridge.get("g@then")
        return follow_up is not None and follow_up.state.finished

    until(is_over, within=within)
    group = bridge.get_group("g")
    assert group is not None
    return group


def judge_group(
    fault: Fault,
    server: EmbeddedServer,
    bridge: Bridge,
    history: Writer,
    *,
    began: int,
    attempts: int,
    lease: float,
    times: int,
) -> Verdict:
    """The verdict over a group that has ended, by what its handlers wrote down themselves.

    `began` is when the first member can have been due, in ms.
    """
    group = until_followed(bridge)
    assert (group.state, group.left) == (GroupState.ENDED, 0), group
    assert (group.succeeded, group.ended is not None) == (group.total, True), group
    ids = [f"g@g{number}" for number in range(group.total)]
    history.write(*(Made(id=id, due=began, attempts=attempts) for id in ids))
    # Its due time is the end of the last member.
    history.write(Made(id="g@then", due=to_ms(group.ended or group.created), attempts=1))
    verdict = judge(
        fault, server, bridge, history, lease=lease, times=times, may_forget=group.total > 10_000
    )
    assert verdict.sound, str(verdict)
    events = read(history.folder)
    followed = [event.at for event in events if isinstance(event, Started) and event.id == "g@then"]
    returned = [event for event in events if isinstance(event, Ended) and event.how == "returned"]
    last = max(event.at for event in returned if event.id != "g@then")
    assert {event.id for event in returned} == {*ids, "g@then"}
    assert min(followed) >= last
    return verdict


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_follow_up_is_due_once_whichever_listener_is_killed(
    server: EmbeddedServer,
    bridge: Bridge,
    folder: Path,
    history: Writer,
    print_later: Callable[[str], None],
    round: int,
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    options = ("--concurrency", str(CONCURRENCY))
    marks = sorted(chance.sample(range(MEMBERS * 9 // 10), KILLS))
    hit = 0
    with Listeners(server.url, folder, history, *options, lease=LEASE) as listeners:
        alive = [listeners.start() for _ in range(4)]
        began = now()
        make(bridge, MEMBERS, work=WORK, raises=10)
        made = now()
        for mark in marks:
            until(partial(has_ended, bridge, mark), within=WITHIN)
            kill(alive.pop(0), history)
            hit += not has_ended(bridge, MEMBERS)
            if len(alive) == 1:
                alive.append(listeners.start())
        verdict = judge_group(
            LISTENERS, server, bridge, history, began=began, attempts=2, lease=LEASE, times=hit
        )
    assert hit
    if IS_LARGE:
        print_later(summary(history, verdict, began=began, made=made))


def summary(history: Writer, verdict: Verdict, *, began: int, made: int) -> str:
    """What came of a large group."""
    events = read(history.folder)
    followed = [event.at for event in events if isinstance(event, Started) and event.id == "g@then"]
    last = max(event.at for event in events if isinstance(event, Ended) and event.id != "g@then")
    return (
        f"{MEMBERS:,} members, made in {(made - began) / 1000:.1f} s, the last of which ended "
        f"{(last - began) / 1000:.1f} s after they were asked for; {verdict.kills} listeners "
        f"killed, {len(verdict.recoveries)} of them while a handler ran; repeated runs: "
        f"{dict(verdict.twice)}; {len(followed)} run of the follow-up, {min(followed) - last} ms "
        "after the last member's end"
    )


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_producer_is_killed_in_the_midst_of_a_group(
    server: EmbeddedServer, bridge: Bridge, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    words = [sys.executable, "-m", "tests.faults.group_there", str(OF_PRODUCERS)]
    env = os.environ | {"EXPIREBRIDGE_URL": server.url, "PYTHONPATH": str(ROOT)}
    with recorded_listener(server.url, folder, history, lease=LONG_LEASE):
        began = now()
        for step in chance.sample(range(2, 2 * OF_PRODUCERS), 3):
            killed = subprocess.run([*words, str(step)], env=env, check=False)
            assert killed.returncode == -signal.SIGKILL
            group = bridge.get_group("g")
            assert group is not None
            assert group.state is GroupState.OPEN
        subprocess.run(words, env=env, check=True)
        judge_group(
            PRODUCERS, server, bridge, history, began=began, attempts=1, lease=LONG_LEASE, times=3
        )
    group = bridge.get_group("g")
    assert group is not None
    assert group.total == OF_PRODUCERS


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_server_is_killed_between_the_steps_of_a_group(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history, options={"appendfsync": "always"}) as scene:
        bridge, began = scene.bridge, now()
        steps: list[Callable[[], object]] = [
            lambda: make(bridge, OF_A_STEP, work=WORK, raises=10, close=False),
            lambda: bridge.make_tasks(members(OF_A_STEP, work=WORK, raises=10), group="g"),
            lambda: bridge.close_group("g"),
        ]
        for step in steps:
            step()
            time.sleep(chance.uniform(0, 2 * WORK))
            scene.server.kill()
            scene.server.start()
        verdict = judge_group(
            SERVER, scene.server, bridge, history, began=began, attempts=2, lease=scene.lease,
            times=len(steps),
        )  # fmt: skip
    assert verdict.states == {State.SUCCEEDED: 2 * OF_A_STEP + 1}
    assert set(verdict.twice) == {"retry"}


@pytest.mark.rest
def test_a_group_that_is_made_across_a_failover_lacks_nothing(
    binary: Path, folder: Path, history: Writer
) -> None:
    """The old primary takes members until it learns of the new one; the server loses these."""
    with (
        Sentinels(binary) as sentinels,
        recorded_listener(sentinels.url, folder, history, "--concurrency", "100", lease=LONG_LEASE),
        Bridge(sentinels.url) as bridge,
        Bridge(sentinels.url) as watcher,
        ThreadPoolExecutor() as threads,
    ):
        making = threads.submit(make, bridge, ACROSS)
        until(partial(has_members, watcher, ACROSS // 8), within=WITHIN)
        sentinels.fail_over()
        with suppress(GroupError, ServerError):
            making.result()
        make(bridge, ACROSS)
        group = until_followed(watcher)
    assert (group.state, group.total) == (GroupState.ENDED, ACROSS)
    events = read(history.folder)
    followed = [event.at for event in events if isinstance(event, Started) and event.id == "g@then"]
    ended = {e.id for e in events if isinstance(e, Ended) and e.at <= min(followed)}
    assert {f"g@g{number}" for number in range(ACROSS)} <= ended


def has_members(bridge: Bridge, count: int) -> bool:
    group = bridge.get_group("g")
    return group is not None and group.total >= count
