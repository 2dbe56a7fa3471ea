"""A ledger and its Redis may be spelt otherwise, restarted, and emptied: the relay goes on."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, event, make_url, select

from expirebridge.embedded.server import EmbeddedServer
from expirebridge.hooks import End
from expirebridge.ledger import Tables
from expirebridge.ledger.binding import Met
from expirebridge.ledger.partition import LedgerEngine
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.ledgers import LedgerHarness, until
from tests.kit.sentinels import Sentinels
from tests.kit.servers import FEW, SERVERS
from tests.kit.witness import Witness, listening, until_logged

OTHER_NAME = "127.1"
"""Another name of this machine, which only its resolver knows for the same."""


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "expirebridge")
    return caplog


def renamed(url: str, name: str = "localhost") -> str:
    """A URL of a server on this machine, by another name of it."""
    return url.replace("127.0.0.1", name)


def respelt(ledger: str, folder: Path) -> str:
    """The URL of a ledger with another address of the same database."""
    url = make_url(ledger)
    if url.get_backend_name() != "sqlite":
        return renamed(ledger)
    other = folder / "other.db"
    other.hardlink_to(url.database or "")
    return f"sqlite:///{other}"


def met(engine: Engine, made: Tables) -> Met:
    with engine.connect() as connection:
        return Met.read(connection.scalar(select(made.passes.c.met)))


def learnt(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says was learnt."""
    return [str(one.fields["news"]) for one in caplog.records  # type: ignore[attr-defined]
            if getattr(one, "event", "") == "ledger learnt"]  # fmt: skip


async def one_runs(settings: Settings, harness: LedgerHarness, id: str) -> None:
    """A listener with these settings carries a new row, and runs it."""
    witness = Witness()
    harness.insert(id, func="test.run", params="[]")
    async with listening(settings, witness, run=lambda: None):
        await witness.until_ended(1, End.SUCCEEDED)


@pytest.mark.parametrize(
    "side",
    [
        "both",
        pytest.param("redis", marks=pytest.mark.rest),
        pytest.param("redis by another name", marks=pytest.mark.rest),
        pytest.param("sql", marks=pytest.mark.rest),
    ],
)
async def test_another_spelling_goes_on(
    harness: LedgerHarness, with_ledger: Settings, made: Tables, tmp_path: Path, side: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert with_ledger.ledger is not None
    other = with_ledger
    if side.startswith("redis"):
        other = replace(
            other, url=renamed(other.url, OTHER_NAME if "name" in side else "localhost")
        )
    if side in {"sql", "both"}:
        other = replace(other, ledger=respelt(with_ledger.ledger, tmp_path))
    if side == "both":
        other = replace(other, url=renamed(other.url))
    await one_runs(with_ledger, harness, "before")
    await one_runs(other, harness, "after")
    await one_runs(with_ledger, harness, "again")
    known = met(harness.engine, made)
    assert len(known.redis) == (1 if side == "sql" else 2)
    assert len(known.sql) == (2 if side in {"sql", "both"} else 1)
    assert len(learnt(caplog)) == len(known.redis) + len(known.sql) - 2
    assert "stands still" not in caplog.text


async def test_two_spellings_side_by_side_do_not_write_in_turns(
    harness: LedgerHarness, with_ledger: Settings, made: Tables, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness()
    other = replace(with_ledger, url=renamed(with_ledger.url))
    async with (
        listening(with_ledger, witness, run=lambda: None),
        listening(other, witness, run=lambda: None),
    ):
        for number in range(6):
            harness.insert(f"{number}", func="test.run", params="[]")
            await witness.until_ended(number + 1, End.SUCCEEDED)
    assert len(met(harness.engine, made).redis) == 2
    assert len(learnt(caplog)) == 1
    assert "stands still" not in caplog.text


async def test_a_rebuild_by_another_spelling_stops_no_listener(
    harness: LedgerHarness, with_ledger: Settings, made: Tables, store: Store, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    assert with_ledger.ledger is not None
    witness = Witness()
    other = replace(
        with_ledger, url=renamed(with_ledger.url), ledger=respelt(with_ledger.ledger, tmp_path)
    )
    async with listening(with_ledger, witness, run=lambda: None):
        harness.insert("before", func="test.run", params="[]")
        await witness.until_ended(1, End.SUCCEEDED)
        with closing(LedgerEngine(other)) as ledger_engine:
            await asyncio.to_thread(ledger_engine.partition(lambda: store).rebuild)
        harness.insert("after", func="test.run", params="[]")
        await witness.until_ended(2, End.SUCCEEDED)
        await until_logged(lambda: len(learnt(caplog)) == 2)
    known = met(harness.engine, made)
    assert (len(known.redis), len(known.sql)) == (2, 2)


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    with Sentinels(SERVERS[FEW[0]]) as watched:
        yield watched


@pytest.fixture
def watched(sentinels: Sentinels, with_ledger: Settings) -> Settings:
    with sentinels.client(sentinels.primary) as client:
        client.flushall()
    return replace(with_ledger, url=sentinels.url)


def with_sentinels(settings: Settings, *chosen: int) -> Settings:
    """The same with some of the sentinels, in this order."""
    scheme, _, rest = settings.url.partition("://")
    login, _, place = rest.rpartition("@")
    hosts, _, path = place.partition("/")
    named = [hosts.split(",")[one] for one in chosen]
    return replace(settings, url=f"{scheme}://{login}@{','.join(named)}/{path}")


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("before", "after", "known"),
    [
        pytest.param((0, 1, 2), (2, 0, 1), 3, id="another order", marks=pytest.mark.rest),
        pytest.param((0, 1, 2), (2, 1), 3, id="two of three", marks=pytest.mark.rest),
        pytest.param((0, 1), (0, 1, 2), 3, id="one added", marks=pytest.mark.rest),
        pytest.param((0, 1), (2,), 3, id="others"),
    ],
)
async def test_other_sentinels_go_on(
    harness: LedgerHarness, watched: Settings, made: Tables, before: tuple[int, ...],
    after: tuple[int, ...], known: int, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    await one_runs(with_sentinels(watched, *before), harness, "before")
    await one_runs(with_sentinels(watched, *after), harness, "after")
    assert len(met(harness.engine, made).redis) == known
    assert len(learnt(caplog)) == known - len(before)
    assert "stands still" not in caplog.text


@pytest.mark.one_database
@pytest.mark.parametrize("empties", [True, pytest.param(False, marks=pytest.mark.rest)])
async def test_a_server_that_restarts_is_the_same(
    engine: Engine, made: Tables, with_ledger: Settings, empties: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    witness = Witness()
    with EmbeddedServer() as server:
        settings = replace(with_ledger, url=server.url, lease=1.0)
        store = Store(redis.Redis(port=server.port, db=1), prefix="expirebridge")
        harness = LedgerHarness(engine, made, store)
        async with listening(settings, witness, run=lambda: None):
            harness.insert("later", 3_600_000, func="test.run", params="[]")
            harness.insert("before", func="test.run", params="[]")
            await witness.until_ended(1, End.SUCCEEDED)
            before = met(engine, made)
            await asyncio.to_thread(restart, server, empties=empties)
            harness.insert("after", func="test.run", params="[]")
            await witness.until_ended(2, End.SUCCEEDED)
            await until(lambda: met(engine, made).run != before.run)
        assert store.client.exists("expirebridge:task:later")
    assert met(engine, made).redis == before.redis
    assert learnt(caplog) == []
    assert "stands still" not in caplog.text.replace("cannot be reached", "")


def restart(server: EmbeddedServer, *, empties: bool) -> None:
    server.kill()
    if empties:
        for path in server.directory.glob("appendonlydir/*"):
            path.unlink()
        (server.directory / "dump.rdb").unlink(missing_ok=True)
    server.start()


def test_a_pass_asks_neither_side_who_it_is(harness: LedgerHarness, with_ledger: Settings) -> None:
    """That is asked for each new connection, and there is none."""
    asked: list[str] = []
    lock = threading.Lock()

    def note(*words: Any) -> None:
        with lock:
            asked.append(str(words[2]))

    with closing(LedgerEngine(with_ledger)) as ledger_engine:
        ours = ledger_engine.partition(lambda: harness.store)
        harness.insert("a", 3_600_000)
        ours.relay_once()
        ours.relay_once()  # Redis knows the ledger since the first
        event.listen(ledger_engine.engine, "before_cursor_execute", note)
        harness.store.client.config_resetstat()
        for number in range(5):
            harness.insert(f"{number}", 3_600_000)
            assert ours.relay_once() == 1
        # What is under way is not counted.
        assert "cmdstat_info" not in harness.store.client.info("commandstats")
    assert len(asked) > 5
    assert [one for one in asked if "met" in one] == []
