"""docs/how-to/back-up.md: its steps are run as it shows them, with a server of its own."""

import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine, create_engine, text

from expirebridge import Bridge, State
from expirebridge.embedded.server import free_port
from expirebridge.hooks import End
from expirebridge.ledger import Ledger
from expirebridge.settings import Settings
from tests.kit.processes import ROOT
from tests.kit.shell import Shell, shell
from tests.kit.witness import Witness, listening

PAGE = (ROOT / "docs" / "how-to" / "back-up.md").read_text()
HOUR = 3600

pytestmark = [
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server"),
]


@dataclass(frozen=True)
class Scene:
    """A Redis with files, and a shell to follow the page."""

    port: int
    folder: Path
    shell: Shell

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def follow(self, chapter: str, *, only: str = "") -> str:
        """Do what a chapter shows; return what the last block printed."""
        _, found, rest = PAGE.partition(f"\n## {chapter}\n")
        assert found
        printed = ""
        blocks = re.findall(r"```bash\n(.*?)```", rest.partition("\n## ")[0], re.DOTALL)
        for block in blocks:
            if only in block:
                printed = self.shell.run(self._here(textwrap.dedent(block)))
        return printed

    def _here(self, block: str) -> str:
        return (
            block.replace(
                "redis-server redis.conf", f"redis-server {ROOT}/redis.conf --port {self.port}"
            )
            .replace("redis-cli", f"redis-cli -p {self.port}")
            .replace("/var/lib/redis", str(self.folder / "data"))
        )

    def start(self) -> None:
        self.shell.run(
            self._here("redis-server redis.conf --dir /var/lib/redis --daemonize yes\n")
            + f"until redis-cli -p {self.port} PING | grep -q PONG; do sleep 0.1; done"
        )


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "data").mkdir()
    port = free_port()
    ledger = f"sqlite:///{tmp_path}/shop.db"
    url = f"redis://127.0.0.1:{port}/0"
    with shell(tmp_path, EXPIREBRIDGE_URL=url, EXPIREBRIDGE_LEDGER=ledger) as opened:
        scene = Scene(port, tmp_path, opened)
        scene.start()
        yield scene
        opened.run(f"redis-cli -p {port} SHUTDOWN NOSAVE")


def test_an_older_copy_is_restored_and_stays_after_a_restart(scene: Scene) -> None:
    with Bridge(scene.url) as bridge:
        bridge.make_task("mail.send", [17], HOUR, id="order-17")
        bridge.make_task("mail.send", [18], HOUR, id="order-18")
        scene.follow("A backup of Redis")
        bridge.cancel("order-17")
        bridge.make_task("mail.send", [19], HOUR, id="order-19")
    scene.follow("Restoring Redis")
    with Bridge(scene.url) as bridge:
        restored = {id: bridge.get(id) for id in ("order-17", "order-18", "order-19")}
    assert restored["order-19"] is None
    assert restored["order-17"] is not None
    assert restored["order-17"].state is State.CANCELLED
    assert restored["order-18"] is not None
    scene.shell.run(f"redis-cli -p {scene.port} SHUTDOWN")
    scene.start()
    with Bridge(scene.url) as bridge:
        again = bridge.get("order-18")
    assert again is not None
    assert again.due == restored["order-18"].due


@pytest.mark.rest
async def test_with_a_ledger_nothing_is_lost_and_nothing_runs_twice(scene: Scene) -> None:
    scene.shell.run("expirebridge ledger create")
    path = f"sqlite:///{scene.folder}/shop.db"
    engine = create_engine(path)
    settings = Settings(url=scene.url, ledger=path, lease=1.0)
    ledger, ran, witness = Ledger(path), list[int](), Witness()

    def make(number: int, delay: float) -> None:
        with engine.begin() as connection:
            ledger.make_task(connection, "test.run", [number], delay, id=f"t{number}")

    make(1, 0)
    async with listening(settings, witness, run=_into(ran)):
        await witness.until_ended(1, End.SUCCEEDED)
    make(2, 2)
    scene.follow("A backup of Redis")
    async with listening(settings, witness, run=_into(ran)):
        make(3, 0)
        await witness.until_ended(3, End.SUCCEEDED)
        await witness.until(lambda: _statuses(engine) == [10, 10, 10])
    make(4, 0)
    scene.follow("Restoring Redis", only="redis")
    async with listening(settings, witness, run=_into(ran)):
        await witness.until_ended(4, End.SUCCEEDED)
        await witness.until(lambda: _statuses(engine) == [10, 10, 10, 10])
    assert sorted(ran) == [1, 2, 3, 4]
    engine.dispose()


def _into(ran: list[int]) -> Callable[[int], None]:
    def run(number: int) -> None:
        ran.append(number)

    return run


def _statuses(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        query = text("SELECT status FROM expirebridge_task ORDER BY id")
        return list(connection.scalars(query))


@pytest.mark.rest
async def test_an_older_sql_database_stops_the_relay_until_it_is_bound(scene: Scene) -> None:
    scene.shell.run("expirebridge ledger create")
    path = f"sqlite:///{scene.folder}/shop.db"
    engine = create_engine(path)
    settings, ledger, ran = (
        Settings(url=scene.url, ledger=path, lease=1.0),
        Ledger(path),
        list[int](),
    )
    witness = Witness()
    with engine.begin() as connection:
        ledger.make_task(connection, "test.run", [1], 1, id="t1")
    async with listening(settings, witness, run=_into(ran)):
        await witness.until(lambda: _carried(scene))
        shutil.copy(scene.folder / "shop.db", scene.folder / "older.db")
        await witness.until_ended(1, End.SUCCEEDED)
        await witness.until(lambda: _statuses(engine) == [10])
    engine.dispose()
    shutil.copy(scene.folder / "older.db", scene.folder / "shop.db")
    with redis.Redis(port=scene.port) as client:
        client.hset("expirebridge:ledger", "number", 1000)  # many passes since
    scene.follow("The SQL database came back older")
    async with listening(settings, witness, run=_into(ran)):
        await witness.until(lambda: _statuses(engine) == [10])
    engine.dispose()
    assert ran == [1]


def _carried(scene: Scene) -> bool:
    with redis.Redis(port=scene.port) as client:
        return bool(client.exists("expirebridge:task:t1"))
