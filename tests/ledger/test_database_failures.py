"""A database that hangs, is away, takes no writes or is full: other tasks run, and it recovers."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest
from sqlalchemy import Engine, create_engine, text

from expirebridge import Bridge, State
from expirebridge.checks.finding import Level
from expirebridge.embedded.server import free_port
from expirebridge.errors import LedgerUnreachable
from expirebridge.ledger.binding import place_of
from expirebridge.ledger.calls import RedisCheckpoint
from expirebridge.ledger.engine import read_url
from expirebridge.ledger.inspection import LedgerInspector
from expirebridge.ledger.rows import Status, SyncState
from expirebridge.ledger.schema import create
from expirebridge.ledger.sql_tables import VERSION, Tables
from expirebridge.ledger.table_checks import check_ledger
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.faults.link import Link
from tests.kit.databases import Database, DatabaseServer, Standby
from tests.kit.ledgers import LedgerHarness
from tests.kit.patience import PATIENCE
from tests.kit.steps import state_of
from tests.kit.witness import Witness, listening, until_logged

HOUR = 3_600_000
WAIT = "tasks of the ledger wait: "
STANDS = "the relay of the ledger stands still: "
Hindrance = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("expirebridge.ledger.engine.PATIENCE", 2.0)


@pytest.fixture
def link(engine: Engine) -> Iterator[Link | None]:
    """What stands between the listener and its database; None for a file."""
    if engine.url.port is None:
        yield None
        return
    with Link(engine.url.port) as link:
        yield link


@pytest.fixture
def with_ledger(url: str, engine: Engine, link: Link | None) -> Settings:
    there = engine.url if link is None else engine.url.set(port=link.port)
    return Settings(url=url, ledger=there.render_as_string(hide_password=False), lease=1.0)


@pytest.fixture
def harness(engine: Engine, made: Tables, store: Store, with_ledger: Settings) -> LedgerHarness:
    place = place_of(with_ledger, read_url(with_ledger.ledger or ""))
    return LedgerHarness(engine, made, store, place=place)


@pytest.fixture
def hanging(engine: Engine, link: Link | None) -> Hindrance:
    """Makes the database hang: nothing comes from it any more; a file is locked."""

    @contextmanager
    def locked() -> Iterator[None]:
        with create_engine(engine.url).connect() as connection:
            connection.exec_driver_sql("BEGIN EXCLUSIVE")
            yield

    return locked if link is None else link.partitioned


def note(number: int) -> None:
    """A handler."""


async def until(holds: Callable[[], object]) -> None:
    """Until a server or a listener is so: there is no signal for that but to look."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.01)


async def others_run(bridge: Bridge, witness: Witness) -> None:
    """Tasks without a row are made, and run."""
    before = len(witness.ended())
    for number in range(3):
        bridge.make_task("test.note", [number], 0)
    await witness.until_ended(before + 3)


@pytest.mark.usefixtures("impatient")
async def test_a_database_that_hangs_holds_up_no_other_task(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge, hanging: Hindrance,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(1)
        with hanging():
            await until_logged(lambda: WAIT in caplog.text)
            await others_run(bridge, witness)
        harness.insert("b", func="test.note", params="[1]")
        await witness.until_ended(5)
        await until_logged(lambda: "the ledger works again" in caplog.text)
    assert caplog.text.count(WAIT) == 1
    assert caplog.text.count(STANDS) <= 1


@pytest.mark.parametrize("hangs", [False, True], ids=["works", "hangs"])
async def test_a_database_that_hangs_does_not_hold_up_a_stop(
    harness: LedgerHarness, bridge: Bridge, store: Store, with_ledger: Settings, hanging: Hindrance,
    hangs: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("expirebridge.ledger.engine.PATIENCE", 3600.0)  # a stop has none
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    harness.insert("b", 60_000, func="test.note", params="[1]")
    async with AsyncExitStack() as hung:
        async with listening(with_ledger, witness, note=note) as listener:
            await witness.until_ended(1)
            await until(lambda: state_of(store, "b") is State.PENDING)
            if hangs:
                hung.enter_context(hanging())
                await asyncio.to_thread(bridge.run_now, "b")
                await until(lambda: listener._executor._running.asking)
        assert state_of(store, "b") is State.PENDING


@pytest.mark.rest
def test_a_call_that_never_returns_does_not_keep_a_process_from_its_end() -> None:
    program = (
        "import threading\n"
        "from expirebridge.ledger.engine import DaemonPool as Waiters\n"
        "began = threading.Event()\n"
        "waiters = Waiters(1)\n"
        "waiters.submit(lambda: (began.set(), threading.Event().wait()))\n"
        "waiters.submit(print)\n"
        "began.wait(20)\n"
        "waiters.close(print)\n"
    )
    subprocess.run([sys.executable, "-c", program], timeout=PATIENCE, check=True)


async def test_a_database_that_is_away_is_waited_for(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge, link: Link | None,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    if link is None:
        pytest.skip("a file is not away")
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(1)
        link.lead_to(free_port())
        await until_logged(lambda: WAIT in caplog.text and STANDS in caplog.text)
        await others_run(bridge, witness)
        link.lead_to(harness.engine.url.port or 0)
        harness.insert("b", func="test.note", params="[1]")
        await witness.until_ended(5)
    assert caplog.text.count(WAIT) == 1
    assert caplog.text.count(STANDS) == 1
    assert "cannot be reached" in caplog.text


@contextmanager
def of_version(engine: Engine, version: int) -> Iterator[None]:
    """Tables of another version."""

    def set_to(number: int) -> None:
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE expirebridge_schema SET version = :number"), {"number": number}
            )

    set_to(version)
    try:
        yield
    finally:
        set_to(VERSION)


@contextmanager
def renamed(engine: Engine, name: str = "elsewhere") -> Iterator[None]:
    """A table that is missing."""

    def rename(old: str, new: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))

    rename("expirebridge_pass", name)
    try:
        yield
    finally:
        rename(name, "expirebridge_pass")


@pytest.mark.parametrize(
    ("unfit", "words"),
    [
        (lambda engine: of_version(engine, VERSION + 1), "upgrade expirebridge"),
        (lambda engine: of_version(engine, VERSION - 1), "it needs"),
        (renamed, "`expirebridge ledger create` creates"),
    ],
    ids=["newer", "older", "missing"],
)
async def test_tables_that_do_not_fit_are_reported_and_nothing_is_sent(
    unfit: Callable[[Engine], AbstractContextManager[None]], words: str, harness: LedgerHarness,
    with_ledger: Settings, bridge: Bridge, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    with unfit(harness.engine):
        async with listening(with_ledger, witness, note=note):
            await until_logged(lambda: WAIT in caplog.text and STANDS in caplog.text)
            await others_run(bridge, witness)
        assert harness.row("a").todo == SyncState.RELAY
    assert caplog.text.count(words) == 2  # by the relay, and by the gate
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(4)


async def test_a_second_reason_that_only_people_can_mend_is_logged_too(
    harness: LedgerHarness, with_ledger: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A table is missing; when it is back, it turns out to be that of another Redis."""
    harness.insert("a", HOUR)
    harness.settle_down()
    with ExitStack() as missing:
        missing.enter_context(renamed(harness.engine))
        async with listening(with_ledger, Witness(), note=note):
            await until_logged(lambda: STANDS in caplog.text)
            with harness.engine.begin() as connection:
                connection.execute(text("UPDATE elsewhere SET nonce = 'x-elsewhere'"))
            missing.close()
            await until_logged(lambda: "another ledger" in caplog.text)
    said = [one.getMessage() for one in caplog.records]
    [first, second] = [line.removeprefix(STANDS) for line in said if line.startswith(STANDS)]
    assert "creates the tables" in first
    assert second.startswith("Redis belongs to another ledger")


@contextmanager
def read_only(engine: Engine) -> Iterator[None]:
    """A PostgreSQL whose new transactions may only read."""

    def set_to(value: str) -> None:
        admin = create_engine(engine.url, isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            name = engine.url.database
            connection.execute(
                text(f"ALTER DATABASE {name} SET default_transaction_read_only = {value}")
            )
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        admin.dispose()
        engine.dispose()

    set_to("on")
    try:
        yield
    finally:
        set_to("off")


async def test_a_database_that_takes_no_writes(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    if harness.engine.dialect.name != "postgresql":
        pytest.skip("the tests' login may always write there")
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(1)
        harness.insert("b", func="test.note", params="[1]")
        with read_only(harness.engine):
            await until_logged(lambda: "read-only transaction" in caplog.text)
            await others_run(bridge, witness)
            [found] = await asyncio.to_thread(
                check_ledger, with_ledger, lambda: {0: RedisCheckpoint("", 0)}, writes=True
            )
            assert found.level is Level.ERROR
            assert "read-only transaction" in str(found)
        await witness.until_ended(5)
        async with asyncio.timeout(PATIENCE):
            while harness.status("a") is not Status.SUCCEEDED:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.02)


@pytest.fixture
def clerk(engine: Engine, with_ledger: Settings) -> Settings:
    """A login at MariaDB that may do anything, but not write to a server that is read-only."""
    if engine.dialect.name != "mariadb":
        pytest.skip("only MariaDB's logins differ so")
    with engine.begin() as connection:
        connection.execute(text("CREATE USER IF NOT EXISTS clerk@'%'"))
        connection.execute(text(f"GRANT ALL ON {engine.url.database}.* TO clerk@'%'"))
    own = read_url(with_ledger.ledger or "").set(username="clerk")
    return replace(with_ledger, ledger=own.render_as_string(hide_password=False))


@contextmanager
def read_only_server(engine: Engine) -> Iterator[None]:
    """A MariaDB that takes no writes."""
    with engine.connect() as connection:
        connection.execute(text("SET GLOBAL read_only = 1"))
        try:
            yield
        finally:
            connection.execute(text("SET GLOBAL read_only = 0"))


async def test_a_server_that_takes_no_writes(
    harness: LedgerHarness, clerk: Settings, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    async with listening(clerk, witness, note=note):
        await witness.until_ended(1)
        with read_only_server(harness.engine):
            harness.insert("b", func="test.note", params="[1]")
            await until_logged(lambda: "--read-only" in caplog.text)
            await others_run(bridge, witness)
        await witness.until_ended(5)
    assert caplog.text.count(STANDS) == 1


async def test_a_file_that_takes_no_writes(
    harness: LedgerHarness, with_ledger: Settings, bridge: Bridge, caplog: pytest.LogCaptureFixture
) -> None:
    if harness.engine.dialect.name != "sqlite":
        pytest.skip("a server's logins are another matter")
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    url = f"sqlite:///file:{harness.engine.url.database}?mode=ro&uri=true"
    async with listening(replace(with_ledger, ledger=url), witness, note=note):
        await until_logged(lambda: STANDS in caplog.text and WAIT in caplog.text)
        await others_run(bridge, witness)
    assert "readonly database" in caplog.text
    assert harness.row("a").todo == SyncState.RELAY


async def test_a_slow_database_delays_its_own_tasks_only(
    url: str, engine: Engine, made: Tables, store: Store, bridge: Bridge
) -> None:
    if engine.url.port is None:
        pytest.skip("a file is not slow; one that is locked hangs")
    with Link(engine.url.port, delay=(0.05, 0.1)) as slow:
        there = engine.url.set(port=slow.port)
        settings = Settings(url=url, ledger=there.render_as_string(hide_password=False))
        harness = LedgerHarness(engine, made, store, place=place_of(settings, there))
        witness = Witness()
        for id in "abc":
            harness.insert(id, func="test.note", params="[1]")
        async with listening(settings, witness, note=note):
            await others_run(bridge, witness)
            await witness.until_ended(6)
            async with asyncio.timeout(PATIENCE):
                while any(  # noqa: ASYNC110 - a row has no event
                    harness.status(id) is not Status.SUCCEEDED for id in "abc"
                ):
                    await asyncio.sleep(0.05)


@pytest.fixture
def standby(shared_database: Database) -> Iterator[Standby]:
    """It has what the test's PostgreSQL has, and follows it."""
    if not isinstance(shared_database, DatabaseServer) or shared_database.name != "postgresql":
        pytest.skip("only PostgreSQL recovers so")
    standby = Standby(shared_database)
    yield standby
    standby.close()


async def test_a_database_in_recovery_is_waited_for(
    harness: LedgerHarness, standby: Standby, with_ledger: Settings, bridge: Bridge, link: Link,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A failover of PostgreSQL: for a while the address leads to a standby."""
    witness = Witness()
    harness.insert("a", func="test.note", params="[1]")
    async with listening(with_ledger, witness, note=note):
        await witness.until_ended(1)
        link.lead_to(standby.port)
        # It can be read: what is in Redis runs on.
        await until_logged(lambda: "read-only transaction" in caplog.text)
        await others_run(bridge, witness)
        standby.promote()
        own = create_engine(harness.engine.url.set(port=standby.port))
        LedgerHarness(own, harness.made, harness.store).insert("b", func="test.note", params="[1]")
        await witness.until_ended(5)
        own.dispose()
    assert STANDS in caplog.text


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system with room for little; not among pytest's folders, which others tidy up."""
    at = Path(mkdtemp(prefix="expirebridge-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "expirebridge-test", str(at)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield at
    subprocess.run(["umount", "--lazy", str(at)], check=True)
    at.rmdir()


def fill(ballast: Path) -> None:
    """Write until there is no more room."""
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


async def test_a_full_disk_is_reported_and_got_over(
    url: str, store: Store, made: Tables, bridge: Bridge, small_disk: Path, engine: Engine,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    if engine.dialect.name != "sqlite":
        pytest.skip("one kind of database is enough")
    settings = Settings(url=url, ledger=f"sqlite:///{small_disk}/ledger.db")
    own = create_engine(settings.ledger or "")
    with own.begin() as connection:
        create(connection, made)
    harness = LedgerHarness(own, made, store, place=place_of(settings, own.url))
    witness, ballast = Witness(), small_disk / "ballast"
    harness.insert("a", func="test.note", params="[1]")
    async with listening(settings, witness, note=note):
        await witness.until_ended(1)
        harness.insert("b", HOUR, func="test.note", params="[1]")
        fill(ballast)
        harness.store.client.zadd("expirebridge:dirty", {"b": 1})
        await until_logged(lambda: "is full" in caplog.text)
        await others_run(bridge, witness)
        ballast.unlink()
        harness.insert("c", func="test.note", params="[1]")
        await witness.until_ended(5)
    assert caplog.text.count(STANDS) == 1
    own.dispose()


@pytest.mark.usefixtures("impatient")
def test_whoever_looks_waits_for_a_moment_only(with_ledger: Settings, link: Link | None) -> None:
    if link is None:
        pytest.skip("a file answers")
    with link.partitioned(), pytest.raises(LedgerUnreachable, match="has not answered for 2 s"):
        LedgerInspector(with_ledger).figures({0: RedisCheckpoint("", 0)})
