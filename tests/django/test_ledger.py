"""The ledger of a Django project: its tables, its rows, and the listener that runs them."""

import pytest

from expirebridge.contrib.django import settings
from tests.kit.databases import SQLITE, Database
from tests.kit.django_project import HANDLERS, SQLITE_OPTIONS, DjangoProject
from tests.kit.patience import until

ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql"}
TABLES = """
from django.db import connections
from expirebridge.contrib.django.ledger_tables import are_there
print(*sorted(alias for alias in connections if are_there(connections[alias])), "-")
"""
TESTS = """
from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from expirebridge import InvalidTask
from expirebridge.contrib.django import amake_task, make_task
from expirebridge.ledger import Ledger, Status
from expirebridge.testing import Clock


class Lost(Exception):
    pass


class Cases:
    def setUp(self):
        self.clock = self.enterContext(Clock())
        self.clock.use_ledger("default")

    def test_rows_of_a_transaction_run(self):
        with transaction.atomic():
            make_task("shop.note", ["kept"], "1h", id="kept", tags=["a"])
            try:
                with transaction.atomic():
                    make_task("shop.note", ["gone"], "1h", id="gone")
                    raise Lost
            except Lost:
                pass
        assert [ran.task.id for ran in self.clock.travel("1h", raising=True)] == ["kept"]
        assert Ledger().get("default", "kept").status is Status.SUCCEEDED

    async def test_rows_run_in_an_async_test(self):
        await amake_task("shop.note", ["kept"], "1h", id="kept")
        with self.assertNoLogs("expirebridge", "WARNING"):
            assert [task.id for task in await self.clock.amade()] == ["kept"]
            await self.clock.atravel("1h", raising=True)
        found = await sync_to_async(Ledger().get)("default", "kept")
        assert found.status is Status.SUCCEEDED

    def test_with_another_database_it_is_made_on_its_commit(self):
        with self.captureOnCommitCallbacks(using="other", execute=True):
            make_task("shop.note", ["x"], "1h", id="x", using="other", if_exists="keep")
        assert Ledger().get("default", "x") is None
        assert [task.id for task in self.clock.made()] == ["x"]

    def test_options_that_rows_do_not_have_are_refused(self):
        with self.assertRaisesRegex(InvalidTask, "private: a task in the ledger cannot have it"):
            make_task("shop.note", ["x"], "1h", private=True)
        with self.assertRaisesRegex(InvalidTask, "if_exists='keep'"):
            make_task("shop.note", ["x"], "1h", id="x", if_exists="keep")


class InTest(Cases, TestCase):
    databases = {"default", "other"}


class Committed(Cases, TransactionTestCase):
    databases = {"default", "other"}

    def captureOnCommitCallbacks(self, **_):
        from contextlib import nullcontext
        return nullcontext()
"""


@pytest.fixture
def shop(project: DjangoProject, shared_database: Database) -> DjangoProject:
    """A project with a ledger in its default database, and a second database."""
    url = shared_database.new_database()
    project.databases = {
        "default": {
            "ENGINE": f"django.db.backends.{ENGINES[shared_database.name]}", "NAME": url.database,
            "USER": url.username or "", "HOST": url.host or "", "PORT": url.port or "",
        },
        "other": {
            "ENGINE": "django.db.backends.sqlite3", "NAME": str(project.folder / "other.sqlite3"),
        },
    }  # fmt: skip
    project.expirebridge["LEDGER"] = "default"
    project.write("shop/tasks.py", HANDLERS + "def note(word): _report(word)")
    return project


def test_the_migration_creates_the_tables_in_one_database_and_drops_them(
    shop: DjangoProject,
) -> None:
    migrated = """
from django.core.management import call_command
from django.db import connections
from expirebridge.contrib.django.ledger_tables import are_there
call_command("sqlmigrate", "expirebridge", "0001")

def after(*words):
    call_command(*words)
    print(words[-1], *(alias for alias in connections if are_there(connections[alias])))

after("migrate", "--database", "default")
after("migrate", "--database", "other")
after("expirebridge", "ledger", "create")
after("migrate", "expirebridge", "zero")
after("expirebridge", "ledger", "create")
after("migrate")
after("makemigrations", "--check")
"""
    told = shop.program(migrated)
    assert "CREATE TABLE expirebridge_task" in told
    words = ["default", "other", "create", "zero", "create", "migrate", "--check"]
    lines = [line.split() for line in told.splitlines() if line.split()[:1] in [[w] for w in words]]
    assert lines == [[word, *([] if word == "zero" else ["default"])] for word in words]
    assert "there already: version 1" in told


@pytest.mark.rest
def test_a_router_can_forbid_the_tables(shop: DjangoProject) -> None:
    shop.write(
        "mysite/routers.py",
        """
class NoLedger:
    def allow_migrate(self, db, app_label, **hints):
        return app_label != "expirebridge"
""",
    )
    shop.more_settings = "DATABASE_ROUTERS = ['mysite.routers.NoLedger']"
    shop.manage("migrate")
    assert shop.program(TABLES).split() == ["-"]


@pytest.mark.rest
def test_a_ledger_that_was_set_after_the_migration_is_noticed(shop: DjangoProject) -> None:
    del shop.expirebridge["LEDGER"]
    shop.manage("migrate")
    assert shop.program(TABLES).split() == ["-"]
    shop.expirebridge["LEDGER"] = "default"
    assert "(expirebridge.W001)" in shop.manage("check", "--database", "default")
    shop.manage("expirebridge", "ledger", "create")
    assert "no issues" in shop.manage("check", "--database", "default")


def test_rows_are_tasks_in_each_kind_of_test(shop: DjangoProject) -> None:
    shop.write("shop/tests.py", TESTS)
    assert "Ran 8 tests" in shop.manage("test", "shop")


@pytest.mark.rest
def test_a_listener_of_the_project_runs_committed_rows(
    shop: DjangoProject, shared_database: Database
) -> None:
    if shared_database.name == SQLITE:
        shop.databases["default"]["OPTIONS"] = SQLITE_OPTIONS
    shop.manage("migrate")
    with shop.listening():
        shop.program("""
from django.db import transaction
from expirebridge.contrib.django import make_task
try:
    with transaction.atomic():
        make_task("shop.note", ["gone"], 0, id="a")
        raise LookupError
except LookupError:
    pass
with transaction.atomic():
    make_task("shop.note", ["kept"], 0, id="a")
""")
        assert shop.report() == "kept"
        shop.until_state("a", "succeeded")
        status = ("expirebridge", "ledger", "status", "--json")
        until(lambda: '"succeeded": 1' in shop.manage(*status), "the row's end")  # written back


# A ledger in a database of its own

ROUTER = """
class Usual:
    def allow_migrate(self, db, app_label, **hints):
        return db == ("other" if app_label == "reports" else "default")
"""


@pytest.mark.rest
def test_a_router_that_leaves_the_ledger_without_tables_is_noticed(shop: DjangoProject) -> None:
    shop.write("mysite/routers.py", ROUTER)
    shop.more_settings = "DATABASE_ROUTERS = ['mysite.routers.Usual']"
    assert "no issues" in shop.manage("check")
    shop.expirebridge["LEDGER"] = "other"
    for words in (["check"], ["migrate", "--database", "other"]):
        told = shop.manage(*words)
        assert "(expirebridge.W002)" in told
        assert "allow_migrate('other', 'expirebridge')" in told
    assert shop.program(TABLES).split() == ["-"]
    shop.write("mysite/routers.py", ROUTER.replace('"reports"', '"expirebridge"'))
    assert "no issues" in shop.manage("check")
    shop.manage("migrate", "--database", "other")  # it is applied there; it found no room
    assert "(expirebridge.W001)" in shop.manage("check", "--database", "other")


ELSEWHERE = """
from django.db import transaction
from expirebridge import InvalidTask
from expirebridge.contrib.django import amake_task, make_task
from expirebridge.ledger import Ledger
from asgiref.sync import async_to_sync

def rows():
    return [i for i in ("a", "b", "c") if Ledger().get("other", i)]

for make in (make_task, async_to_sync(amake_task)):
    try:
        with transaction.atomic():
            make("shop.note", ["x"], "1h", id="a")
    except InvalidTask as error:
        print("refused", error)
assert rows() == [], rows()
try:
    with transaction.atomic():
        with transaction.atomic(using="other"):
            make_task("shop.note", ["x"], "1h", id="b")
        make_task("shop.note", ["x"], "1h", id="c", using="other")
        make_task("shop.note", ["x"], "1h", id="d", using="default")
        raise LookupError
except LookupError:
    pass
assert rows() == ["b", "c"], rows()
make_task("shop.note", ["x"], "1h", id="a")
assert rows() == ["a", "b", "c"], rows()
"""


def test_a_rollback_that_would_not_take_the_task_along_is_no_trap(shop: DjangoProject) -> None:
    """The transaction that is open is of another database than the ledger."""
    shop.expirebridge["LEDGER"] = "other"
    shop.manage("migrate", "--database", "other")
    told = shop.program(ELSEWHERE)
    refused = [line for line in told.splitlines() if line.startswith("refused ")]
    assert len(refused) == 2
    assert "the open transaction is of 'default', and the ledger is in 'other'" in refused[0]
    assert '"pending": 0' in shop.manage("expirebridge", "count", "--json")


DATABASES: dict[str, dict[str, object]] = {
    "postgresql:///shop": {"NAME": "shop"},
    "postgresql://ann:a%2Fb%40c@db:5433/shop": {
        "NAME": "shop", "USER": "ann", "PASSWORD": "a/b@c", "HOST": "db", "PORT": "5433",
    },
    "postgresql:///shop?host=%2Frun%2Fpg": {"NAME": "shop", "HOST": "/run/pg"},
    "postgresql:///shop?host=a%2Cb&port=1%2C2": {"NAME": "shop", "HOST": "a,b", "PORT": "1,2"},
    "postgresql:///shop?sslmode=require": {
        "NAME": "shop", "OPTIONS": {"sslmode": "require", "pool": True, "isolation_level": 3},
    },
}  # fmt: skip
"""Settings of Django's databases, by the URL of each."""


@pytest.mark.rest
def test_the_url_is_that_of_the_alias(project: DjangoProject) -> None:
    engine = "django.db.backends.postgresql"
    for number, database in enumerate(DATABASES.values()):
        project.databases[f"a{number}"] = {"ENGINE": engine, **database}
    project.expirebridge["LEDGER"] = "default"
    told = project.program(f"""
from django.conf import settings
from expirebridge import Settings
for number in range({len(DATABASES)}):
    settings.EXPIREBRIDGE["LEDGER"] = f"a{{number}}"
    print(Settings.read().ledger)
""")
    assert told.split() == list(DATABASES)


@pytest.mark.rest
def test_the_environment_names_another_database_than_the_alias(project: DjangoProject) -> None:
    project.expirebridge["LEDGER"] = "default"
    told = project.program(
        "from expirebridge import Settings; print(Settings.read().ledger)",
        EXPIREBRIDGE_LEDGER="sqlite:///x",
    )
    assert told.strip() == "sqlite:///x"


def test_options_of_mysql_are_those_of_its_drivers() -> None:
    given = {"charset": "utf8mb4", "ssl": {"ca": "/ca.pem"}, "isolation_level": "x"}
    assert settings._options(given) == {"charset": "utf8mb4", "ssl_ca": "/ca.pem"}
    place = settings._address("mysql", {"HOST": "/run/mysql.sock", "PORT": ""})
    assert place == (None, None, {"unix_socket": "/run/mysql.sock"})


@pytest.mark.rest
def test_a_database_that_can_hold_no_ledger_is_refused(project: DjangoProject) -> None:
    project.databases["default"] = {"ENGINE": "django.db.backends.dummy"}
    project.expirebridge["LEDGER"] = "default"
    told = project.manage("check", code=1)
    assert "['LEDGER']='default': a database of unknown can hold no ledger" in told
