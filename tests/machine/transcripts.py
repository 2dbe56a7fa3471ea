"""Transcripts: each reply of each script in random lives with fixed seeds, to compare two versions.

    python -m tests.machine.transcripts OUT [KIND ...] [--seeds N]

writes a file for each life into the folder OUT: of each script called its name, arguments, reply,
and the server's digest of all data after it. Two versions of the scripts that do the same write the
same files: `diff -r BEFORE AFTER`. It also prints which scripts no life calls.

Nothing in a life depends on when or where it runs. The server's clock (faketime) moves on by a few
ms at each call, and by nothing else. Random ids and tokens come from the seed.
"""

import argparse
import os
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from redis import exceptions
from sqlalchemy import MetaData, create_engine, event

from expirebridge.connection import clients
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.fleet.operations import asked_of
from expirebridge.ledger import tables
from expirebridge.ledger.schema import create
from expirebridge.store import script_loader
from expirebridge.store.client import Database, Store
from expirebridge.task.calls import reconciling
from expirebridge.task.calls.call import Command
from tests.kit.ledgers import LedgerHarness
from tests.kit.lua import NAMES
from tests.kit.steps import server_ms
from tests.kit.wrong_clock import started_with
from tests.ledger.model import Model
from tests.ledger.world import World
from tests.machine import groups_machine, limits_machine, machine, order_machine
from tests.machine.lane_plans import Plan, few_at_once, plans
from tests.machine.mixed_life import MixedLife
from tests.machine.test_machine import CELLS
from tests.machine.test_progress import Run

BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
TICK = 0.007
"""How many seconds each call takes, by the server's clock."""
PORT = 29029
"""Moves note the URL of the other database, and so the port."""
LIVES_EACH = 3
"""Lives of one seed. Hypothesis begins with the simplest there is."""
LEDGER_STEPS = 120
MIXED_STEPS = 150
SEEDS = {
    "main": 60, "groups": 40, "limits": 40, "order": 12, "progress": 12, "ledger": 12, "mixed": 24,
}  # fmt: skip
"""How many transcripts there are of each kind."""


class SteppedServer:
    """A server whose clock a file says."""

    def __init__(self, stack: ExitStack, port: int | None = None) -> None:
        self._file = Path(stack.enter_context(TemporaryDirectory())) / "clock"
        self.set_clock(BEGAN)
        server = EmbeddedServer(port=port, options={"enable-debug-command": "yes"})
        with started_with(
            TZ="UTC", FAKETIME_TIMESTAMP_FILE=str(self._file), FAKETIME_NO_CACHE="1",
            FAKETIME_DONT_FAKE_MONOTONIC="0",
        ):  # fmt: skip
            stack.enter_context(server)
        # To stop in order takes it some time, which never passes.
        stack.callback(server.kill)
        self.url = server.url
        self.client = stack.enter_context(redis.Redis(port=server.port))
        # What has ended is deleted when a script meets it, and not now and then.
        self.client.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")

    def set_clock(self, now: datetime) -> None:
        """Let it be this time. The server finds the file whole."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{now:%Y-%m-%d %H:%M:%S.%f}\n", encoding="ascii")
        new.rename(self._file)
        self._now = now

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        self.set_clock(self._now + timedelta(seconds=seconds))


class Transcript:
    """The lines of what one server was asked, and of what it answered."""

    def __init__(self, server: SteppedServer) -> None:
        self.lines: list[str] = []
        self.called: Counter[str] = Counter()
        self._server = server
        server.client.flushall()
        server.set_clock(BEGAN)

    def note(self, call: Command[Any], reply: object) -> None:
        """Write down one call, and the digest of all that the server holds after it."""
        self.called[call.name] += 1
        digest: Any = self._server.client.execute_command("DEBUG", "DIGEST")
        given = ", ".join(map(repr, call.arguments))
        self.lines.append(f"{call.name}({given}) -> {reply!r} #{digest.decode()[:12]}")
        self._server.advance(TICK)


@contextmanager
def recording(transcript: Transcript) -> Iterator[None]:
    """Every store of this process notes its scripts' replies, as long as the block runs."""
    send = Database._send

    def noted(self: Database, call: Any) -> Generator[Any, Any, Any]:
        is_noted = isinstance(call, Command) and call.is_script
        try:
            reply = yield from send(self, call)
        except exceptions.RedisError as error:
            if is_noted:
                transcript.note(call, error)
            raise
        if is_noted:
            if call.name == "scan":
                reply = [*reply[:2], sorted(reply[2]), *sorted(reply[3:])]
            if call.name == "read_run_id":
                reply = b"of this start"
            transcript.note(call, reply)
        return reply

    def scan_all(cursor: str, _: int, *more: Any) -> Command[Any]:
        return scan(cursor, 10_000, *more)

    scan = reconciling.scan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_send", noted)
        # How a server divides its keys into pages differs from server to server.
        patch.setattr(reconciling, "scan", scan_all)
        yield


@contextmanager
def _repeatable(number: int) -> Iterator[None]:
    """Nothing in this process is random, or known from another life."""
    drawn = random.Random(number)  # noqa: S311 - to be repeated
    began = time.monotonic()
    asked_of.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(random, "_urandom", drawn.randbytes)
        patch.setattr(os, "urandom", drawn.randbytes)
        # What a producer knows of listeners is old after some seconds.
        patch.setattr(time, "monotonic", lambda: began)
        # Hypothesis prefers values that stand in our code: another version may have others.
        patch.setattr(providers, "_get_local_constants", Constants)
        yield


def _chosen(steps: int = 50) -> settings:
    return settings(
        max_examples=LIVES_EACH, stateful_step_count=steps, deadline=None, database=None,
        phases=[Phase.generate], derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def _live(machine: type[RuleBasedStateMachine], number: int) -> None:
    run_state_machine_as_test(seed(number)(machine), settings=_chosen())


def _main(server: SteppedServer, number: int) -> None:
    # A life begins with one cell of the table: each seed with another.
    _live(machine.machine_for(server.url, Counter(), [CELLS[number * 11 % len(CELLS)]]), number)


def _groups(server: SteppedServer, number: int) -> None:
    _live(groups_machine.machine_for(server.url), number)


def _limits(server: SteppedServer, number: int) -> None:
    _live(limits_machine.machine_for(server.url), number)


def _order(server: SteppedServer, number: int) -> None:
    base = server.url.rpartition("/")[0]
    _live(order_machine.machine_for(f"{base}/1", f"{base}/3"), number)


def _progress(server: SteppedServer, number: int) -> None:
    @seed(number)
    @_chosen()
    @given(plan=plans())
    def make_progress(plan: Plan) -> None:
        Run(plan, client, store).run()

    client = redis.Redis.from_url(server.url)
    store = Store(clients.producer_client(server.url), prefix="expirebridge")
    try:
        with script_loader.using(few_at_once()):
            make_progress()
    finally:
        store.close()
        client.close()


def _ledger(server: SteppedServer, number: int) -> None:
    engine, made = create_engine("sqlite://"), tables(MetaData())
    client = redis.Redis.from_url(server.url)

    def julianday(_: str) -> float:
        return 2440587.5 + server_ms(client) / 86_400_000

    @event.listens_for(engine, "connect")
    def share_clock(connection: sqlite3.Connection, _: object) -> None:
        """The database has the server's clock."""
        connection.create_function("julianday", 1, julianday)

    store = Store(clients.producer_client(server.url), prefix="expirebridge")
    try:
        with engine.begin() as connection:
            create(connection, made)
        harness = LedgerHarness(engine, made, store)
        world = World(harness, client, number, model=Model(), is_calm=number % 2 == 1)
        assert world.live(LEDGER_STEPS) == []
    finally:
        engine.dispose()
        store.close()
        client.close()


def _mixed(server: SteppedServer, number: int) -> None:
    client = redis.Redis.from_url(server.url)
    store = Store(clients.producer_client(server.url), prefix="expirebridge")
    try:
        MixedLife(client, store, number, server.advance).live(MIXED_STEPS)
    finally:
        store.close()
        client.close()


KINDS: dict[str, Callable[[SteppedServer, int], None]] = {
    "main": _main, "groups": _groups, "limits": _limits, "order": _order, "progress": _progress,
    "ledger": _ledger, "mixed": _mixed,
}  # fmt: skip


def transcribe(server: SteppedServer, kind: str, number: int) -> Transcript:
    """Live the lives of one seed, on a server that may have been used before."""
    transcript = Transcript(server)
    with _repeatable(number), recording(transcript):
        KINDS[kind](server, number)
    return transcript


def write_transcripts(folder: Path, kinds: list[str], seeds: int | None) -> None:
    """Write the transcripts of these kinds into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    called: Counter[str] = Counter()
    with ExitStack() as stack:
        server = SteppedServer(stack, PORT)
        for kind in kinds:
            for number in range(seeds or SEEDS[kind]):
                transcript = transcribe(server, kind, number)
                text = "\n".join(transcript.lines) + "\n"
                (folder / f"{kind}-{number:03}.txt").write_text(text, encoding="utf-8")
                called += transcript.called
    print(f"{called.total()} calls of {len(called)} scripts")  # noqa: T201 - the result
    print("never called:", *sorted({*NAMES} - {*called}))  # noqa: T201


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Write transcripts of all scripts' replies.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND")
    parser.add_argument("--seeds", type=int, help="so many of each kind")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets have the same order in each process then.
        words = [sys.executable, "-m", "tests.machine.transcripts", *sys.argv[1:]]
        os.execve(sys.executable, words, os.environ | {"PYTHONHASHSEED": "0"})  # noqa: S606
    write_transcripts(given.folder, given.kinds or [*KINDS], given.seeds)


if __name__ == "__main__":
    main()
