"""The server lives, and cannot do its work for a while: stopped, blocked, out of memory."""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from expirebridge.errors import ServerOutOfMemory
from tests.faults.scene import Scene, staged
from tests.faults.stage import ROUNDS, until_finished
from tests.faults.table import Fault
from tests.kit.history import Writer
from tests.kit.snapshot import check_invariant, read

STILL = 3.0
LONG_STILL = 10.0
"""Seconds for which the server is stopped; the first of many rounds has the long one."""
STOPPED = Fault(
    name="the server is stopped",
    injected="`SIGSTOP` of the server for 3 s, once 10 s, and `SIGCONT`",
    promise="tasks run late, and nothing runs twice because of it",
)
BLOCKED = Fault(
    name="a script blocks the server",
    injected="an endless `EVAL`, until the server answers `BUSY`; then `SCRIPT KILL`",
    promise="producers get that error; nothing is lost, and nothing runs twice because of it",
)
FLUSHED = Fault(
    name="the server forgets its scripts",
    injected="`SCRIPT FLUSH`, fifty times, while tasks are made and run",
    promise="nothing is noticed",
)
FULL = Fault(
    name="the server is out of memory",
    injected="`maxmemory` is reached, with `noeviction`, while tasks are made and run",
    promise="making is refused whole, with a clear error; what exists runs and is recorded "
    "meanwhile, on Redis 7 and later and on Valkey",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_server_is_stopped(binary: Path, folder: Path, history: Writer, round: int) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    seconds = LONG_STILL if ROUNDS > 1 and not round else STILL
    with staged(binary, folder, history) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            scene.start_bait(seconds + 1)
            pid = scene.server.pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
            stream.until_more(50)
        verdict = scene.judge(STOPPED)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_script_blocks_the_server(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    # The name that every server knows, for the ms after which it answers that it is busy.
    with staged(binary, folder, history, options={"lua-time-limit": "200"}) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            with endless_script(scene):
                error = stream.until_refused()
            stream.until_more(50)
        verdict = scene.judge(BLOCKED)
    assert "BUSY" in str(error)
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}


@contextmanager
def endless_script(scene: Scene) -> Iterator[None]:
    """Block the server; kill the script when the block ends."""

    def run() -> None:
        with (
            redis.Redis.from_url(scene.server.url) as client,
            pytest.raises(redis.ResponseError, match="by user"),
        ):
            client.eval("while true do end", 0)

    scene.client.ping()  # a busy server lets no new connection choose its database
    thread = threading.Thread(target=run, name="endless script")
    thread.start()
    try:
        yield
    finally:
        scene.client.script_kill()
        thread.join()


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_server_forgets_its_scripts(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with staged(binary, folder, history) as scene:
        with scene.stream(chance) as stream:
            for _ in range(50):
                stream.until_more(chance.randint(1, 6))
                scene.client.script_flush()
        verdict = scene.judge(FLUSHED)
        log = scene.log()
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) <= {"retry"}
    assert not stream.errors
    assert "WARNING server" not in log


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_server_is_out_of_memory(
    binary: Path, folder: Path, history: Writer, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    item = {"func": "recorded.work", "args": [0, 0], "delay": 60}
    with staged(binary, folder, history) as scene:
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            scene.client.config_set("maxmemory", 1)
            error = stream.until_refused()
            with pytest.raises(ServerOutOfMemory, match="nothing was written"):
                scene.bridge.make_tasks([item] * 10)
            check_invariant(read(scene.client), edited=set())
            until_finished(scene.bridge)
            counts = scene.bridge.count()
            scene.client.config_set("maxmemory", 0)
            stream.until_more(50)
        verdict = scene.judge(FULL)
    assert isinstance(error, ServerOutOfMemory)
    assert counts.pending + counts.running == 0, "what existed waited for memory"
    assert verdict.sound, str(verdict)
    assert set(verdict.twice) == {"retry"}
