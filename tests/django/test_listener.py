"""A Django project's listener: its settings, its handlers in apps, and each kind of process."""

import signal

import pytest

from tests.kit.django_project import HANDLERS, DjangoProject
from tests.kit.prepared_python import FreshPython

pytestmark = pytest.mark.rest

TASKS = (
    HANDLERS
    + """
from expirebridge import handler

def plain(word):
    _report(f"plain {word}")

async def awaited(word):
    _report(f"awaited {word}")

@handler(process=True)
def apart(word):
    _report(f"apart {word}")
"""
)
CALLS = """
from expirebridge import make_task
from shop.tasks import apart, awaited, plain
for function in (plain, awaited, apart):
    make_task(function, [function.__name__], 0)
"""
WORDS = ["apart apart", "awaited awaited", "plain plain"]


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    project.python = FreshPython()
    project.write("shop/tasks.py", TASKS)
    return project


@pytest.mark.parametrize(
    "command", [("manage.py", "expirebridge"), ("-m", "expirebridge")], ids=["manage", "command"]
)
@pytest.mark.parametrize("options", [[], ["--workers", "2"]], ids=["one", "workers"])
def test_each_kind_of_handler_runs_in_the_project(
    shop: DjangoProject, command: tuple[str, ...], options: list[str]
) -> None:
    module = {} if command[0] == "manage.py" else {"DJANGO_SETTINGS_MODULE": "mysite.settings"}
    with shop.listening(*options, command=command, **module):
        shop.program(CALLS)
        assert sorted(shop.report() for _ in WORDS) == WORDS


def test_handlers_are_found_in_each_app_and_in_listed_modules(project: DjangoProject) -> None:
    project.write("shop/tasks/__init__.py", "def first(): pass")
    project.write("shop/tasks/mail.py", "def send(): pass")
    project.write("shop/tasks/by_post/parcels.py", "def pack(): pass")
    project.write("shop/tasks/_private.py", "def hidden(): pass")
    project.write("shop/jobs.py", "from django.apps import apps\ndef clean(): pass")
    project.expirebridge["MODULES"] = ["shop.jobs"]
    listed = project.manage("expirebridge", "handlers", "--json")
    names = project.program(
        "from expirebridge.handlers import Registry\nfrom expirebridge import Settings\n"
        "print(*[one.name for one in Registry.of(Settings.read())])"
    ).split()
    assert names == [
        "shop.first", "shop/by_post/parcels.pack", "shop/jobs.clean", "shop/mail.send",
    ]  # fmt: skip
    assert all(f'"{name}"' in listed for name in names)


def test_a_changed_handler_restarts_a_listener(shop: DjangoProject) -> None:
    with shop.listening("--reload") as process:
        shop.program(
            "from shop.tasks import plain; from expirebridge import make_task\n"
            "make_task(plain, ['before'], 0)"
        )
        assert shop.report() == "plain before"
        shop.write("shop/tasks.py", TASKS.replace("plain {word}", "changed {word}"))
        shop.program(
            "from shop.tasks import plain; from expirebridge import make_task\n"
            "make_task(plain, ['after'], 0)"
        )
        assert shop.report() in {"plain after", "changed after"}
        shop.until_logged("listening on", times=2)
        shop.program(
            "from shop.tasks import plain; from expirebridge import make_task\n"
            "make_task(plain, ['later'], 0)"
        )
        assert shop.report() == "changed later"
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_lines_are_left_to_a_handler_of_the_projects_own(shop: DjangoProject) -> None:
    shop.more_settings = """
LOGGING = {
    "version": 1,
    "formatters": {"own": {"format": "own format: %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"handlers": ["console"], "level": "WARNING"},
}
"""
    loud = "import logging\n" + TASKS.replace(
        '_report(f"apart {word}")', 'logging.warning("from apart"); _report(f"apart {word}")'
    )
    shop.write("shop/tasks.py", loud)
    with shop.listening():
        shop.program(
            "from shop.tasks import apart; from expirebridge import make_task\n"
            "make_task(apart, ['x'], 0)"
        )
        assert shop.report() == "apart x"
        shop.until_logged("from apart")
    lines = shop.log.splitlines()
    assert lines.count("own format: root from apart") == 1
    assert all(line.startswith("own format: ") for line in lines)


def test_errors_are_shown_from_the_handler_on(shop: DjangoProject) -> None:
    shop.write("shop/tasks.py", "def fail():\n    1 / 0\nasync def afail():\n    1 / 0\n")
    with shop.listening():
        for name in ("fail", "afail"):
            shop.program(
                "from expirebridge import make_task\n"
                f"make_task('shop.{name}', [], 0, id='{name}', retry=[])"
            )
            shop.until_state(name, "failed")
            told = shop.manage("expirebridge", "show", name)
            assert "ZeroDivisionError" in told
            assert "shop/tasks.py" in told
            assert "database_connections.py" not in told
