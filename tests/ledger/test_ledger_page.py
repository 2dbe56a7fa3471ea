"""docs/reference/ledger.md: its SQL works from common clients, and its rights are the least."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from expirebridge import Change
from expirebridge.errors import TaskExists
from expirebridge.ledger import Ledger, Tables, complete
from expirebridge.ledger.rows import new_task_of
from expirebridge.task.calls.call import When
from tests.kit.databases import POSTGRESQL, SQLITE, client_of

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "ledger.md").read_text(encoding="utf-8")
INSERT, CANCEL, *GRANTS = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
USERS = count(1)


def test_the_page_is_read() -> None:
    assert INSERT.startswith("INSERT INTO expirebridge_task")
    assert CANCEL.startswith("UPDATE expirebridge_task")
    assert [grant.count("GRANT") for grant in GRANTS] == [2, 1]


def typed(engine: Engine, statement: str) -> None:
    """Send a statement with the command that people use."""
    url = engine.url
    name = {"postgresql": "postgresql", "sqlite": "sqlite"}.get(engine.dialect.name, "mariadb")
    if (client := client_of(name)) is None:
        pytest.skip(f"needs the client of {name}")
    words = {
        "postgresql": f"-X -h {url.host} -p {url.port} -U {url.username} -d {url.database} -c",
        "sqlite": f"{url.database}",
        "mariadb": f"--no-defaults -h {url.host} -P {url.port} -u {url.username} {url.database} -e",
    }[name]
    subprocess.run([client, *shlex.split(words), statement], check=True, capture_output=True)


def test_its_first_example_is_one_transaction(engine: Engine, made: Tables) -> None:
    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    [example, *_] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = engine.url.render_as_string(hide_password=False)
    example = example.replace("postgresql+psycopg://shop@localhost/shop", shown)
    Base.metadata.create_all(engine)
    names: dict[str, Any] = {"order": Order()}
    try:
        exec(example, names)  # noqa: S102 - the page's own text
        with engine.connect() as connection:
            [row] = connection.execute(made.task.select())
            assert connection.execute(text("SELECT count(*) FROM orders")).scalar() == 1
        assert (row.func, row.params, row.ext_string) == ("orders.rate", "[17]", "order-17")
    finally:
        names["engine"].dispose()
        Base.metadata.drop_all(engine)


def test_a_plain_insert_is_a_task(engine: Engine, ledger: Ledger, made: Tables) -> None:
    typed(engine, INSERT)
    with engine.connect() as connection:
        [plain] = connection.execute(made.task.select()).mappings()
        assert new_task_of(plain, plain["written"]).when == When(259_200_000, relative=True)
        assert new_task_of(plain, plain["written"]).call == b"orders.rate?[17]"
        ledger.make_task(connection, "orders.rate", [17], "72h", id="same", ext="order-17")
        [same] = connection.execute(made.task.select().where(made.task.c.id == "same")).mappings()
        times = {"id", "generation", "created", "modified", "written", "planned"}
        assert {name: value for name, value in plain.items() if name not in times} == {
            name: value for name, value in same.items() if name not in times
        }


def test_a_plain_update_cancels(engine: Engine, ledger: Ledger, made: Tables) -> None:
    with engine.begin() as connection:
        for id in ("plain", "same"):
            ledger.make_task(connection, "orders.rate", [17], "72h", id=id, ext=f"order-{id}")
    typed(engine, CANCEL.replace("order-17", "order-plain"))
    with engine.begin() as connection:
        assert ledger.cancel(connection, "same") is Change.CANCELLED
        plain, same = (ledger.get(connection, id) for id in ("plain", "same"))
        assert plain is not None
        assert same is not None
        assert (plain.wanted, plain.revision) == (same.wanted, same.revision) == ("cancelled", 2)
    typed(engine, CANCEL.replace("order-17", "order-plain"))
    with engine.connect() as connection:
        again = ledger.get(connection, "plain")
        assert again is not None
        assert again.revision == 2


def test_a_plain_insert_that_is_rolled_back_leaves_nothing(engine: Engine, made: Tables) -> None:
    typed(engine, f"BEGIN; {INSERT} ROLLBACK;")
    with engine.connect() as connection:
        assert connection.execute(made.task.select()).all() == []


def rights_of(script: str) -> list[tuple[str, str]]:
    """Each right that a script grants, and on what."""
    return [
        (right.strip(), table)
        for rights, table in re.findall(r"GRANT (.*?) ON (\w+) TO", script)
        for right in rights.split(",")
    ]


@pytest.fixture
def login(engine: Engine) -> Iterator[Any]:
    """Makes an engine for a new user with some rights."""
    if engine.dialect.name == SQLITE:
        pytest.skip("SQLite has no users")
    users: list[str] = []
    engines: list[Engine] = []

    def make(rights: list[tuple[str, str]]) -> Engine:
        user = f"user_{next(USERS)}"
        users.append(user)
        create = "ROLE {} LOGIN" if engine.dialect.name == POSTGRESQL else "USER {}@'%'"
        with engine.begin() as connection:
            connection.execute(text("CREATE " + create.format(user)))
            for right, table in rights:
                connection.execute(text(f"GRANT {right} ON {table} TO {user}"))
        engines.append(create_engine(engine.url.set(username=user)))
        return engines[-1]

    yield make
    for one in engines:
        one.dispose()
    with engine.begin() as connection:
        for user in users:
            if engine.dialect.name == POSTGRESQL:
                connection.execute(text(f"DROP OWNED BY {user}"))
            connection.execute(text(f"DROP USER {user}"))


def everything(connection: Connection) -> None:
    """What a program does with a ledger."""
    ledger = Ledger()
    ledger.make_task(connection, "a.b", [], 5)
    ledger.make_task(connection, "a.b", [], 5, id="x", ext="e")
    with pytest.raises(TaskExists):
        ledger.make_task(connection, "a.b", [], 5, id="x")
    ledger.reschedule(connection, "x", 5)
    assert len(ledger.find(connection, ext="e")) == 1
    task = ledger.get(connection, "x")
    assert task is not None
    assert task.generation is not None
    complete(
        connection, ledger.tables, ledger="default", id="x", generation=task.generation,
        revision=2, attempt=1,
    )  # fmt: skip
    ledger.make_task(connection, "a.b", [], 5, id="x")
    assert ledger.cancel(connection, "x") is Change.CANCELLED


def test_a_program_needs_these_rights_and_each_of_them(login: Any) -> None:
    rights = rights_of(GRANTS[0])
    assert len(rights) == 4
    with login(rights).connect() as connection:
        everything(connection)
    for dropped in rights:
        engine = login([right for right in rights if right != dropped])
        with engine.connect() as connection, pytest.raises(DBAPIError, match="denied"):
            everything(connection)


def test_who_steers_series_needs_two_rights_more(login: Any, engine: Engine) -> None:
    steers = [("SELECT", "expirebridge_series"), ("UPDATE", "expirebridge_series")]
    ledger = Ledger()
    with engine.begin() as connection:
        ledger.schedule(connection, "s", "a.b", every="1h", tags=["x"])

    def steer(connection: Connection) -> None:
        assert ledger.pause_series(connection, "s") is Change.PAUSED
        assert ledger.resume_series(connection, "s") is Change.RESUMED
        assert ledger.run_series(connection, "s") is not None

    with login([*rights_of(GRANTS[0]), *steers]).begin() as connection:
        steer(connection)
    for right in steers:
        few = login([*rights_of(GRANTS[0]), right])
        with few.connect() as connection, pytest.raises(DBAPIError, match="denied"):
            steer(connection)


def test_a_program_that_only_inserts_needs_one_right(login: Any) -> None:
    with login(rights_of(GRANTS[1])).connect() as connection:
        connection.execute(text(INSERT))
        for refused in ("SELECT id FROM expirebridge_task", CANCEL):
            with pytest.raises(DBAPIError, match="denied"), connection.begin_nested():
                connection.execute(text(refused))
    other = [("SELECT", "delay_queue")]
    with login(other).connect() as connection, pytest.raises(DBAPIError, match="denied"):
        connection.execute(text(INSERT))
