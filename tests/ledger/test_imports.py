"""Without a ledger nothing needs SQLAlchemy; with one, an error names the extra to install."""

import subprocess
import sys

PROGRAM = """
import sys
import expirebridge, expirebridge.cli.application, expirebridge.listener.listener
import expirebridge.producer.bridge
expirebridge.cli.application.application()
import expirebridge.producer.operations, expirebridge.checks, expirebridge.observe.logs
for name in expirebridge.__all__:
    getattr(expirebridge, name)
print([name for name in sys.modules if name.startswith("sqlalchemy")])
"""

WITHOUT = """
import sys
sys.modules["sqlalchemy"] = None
try:
    import expirebridge.ledger
except ModuleNotFoundError as error:
    print(error)
"""

EVERY_MODULE = """
import importlib, pkgutil, sys
sys.modules["sqlalchemy"] = None
import django, expirebridge
from django.conf import settings
apps = ("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes")
settings.configure(INSTALLED_APPS=[*apps, "expirebridge.contrib.django"])
django.setup()
FOR_A_LEDGER = {
    "expirebridge.ledger", "expirebridge.observe.ledger_metrics", "expirebridge.web.ledger",
    "expirebridge.testing.alone", "expirebridge.testing.rows",
}
for module in pkgutil.walk_packages(expirebridge.__path__, "expirebridge.", lambda name: None):
    if module.name not in FOR_A_LEDGER | {"expirebridge.__main__"}:
        importlib.import_module(module.name)
"""

METRICS = """
import sys, urllib.request
sys.modules["sqlalchemy"] = None
from expirebridge.observe.metrics import Metrics
from expirebridge.settings import Settings
metrics = Metrics()
metrics.watch(Settings.read(url=sys.argv[1]))
with urllib.request.urlopen(metrics.serve("127.0.0.1", 0)) as answer:
    print("expirebridge_server_up 1.0" in answer.read().decode())
"""

DASHBOARD = """
import asyncio, sys
sys.modules["sqlalchemy"] = None
import httpx
from expirebridge.web import app
async def look():
    transport = httpx.ASGITransport(app(sys.argv[1]))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        print([(await client.get(path)).status_code for path in ("/", "/series", "/ledger")])
asyncio.run(look())
"""

DASHBOARD_WITH_LEDGER = """
import sys
sys.modules["sqlalchemy"] = None
from expirebridge import InvalidSetting
from expirebridge.web import app
try:
    app(sys.argv[1], ledger="sqlite:///ledger.db")
except InvalidSetting as error:
    print(error)
"""


def printed(program: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_nothing_else_imports_sqlalchemy() -> None:
    assert printed(PROGRAM) == "[]"


def test_without_it_the_extra_is_named() -> None:
    assert printed(WITHOUT) == "the ledger needs SQLAlchemy: pip install 'expirebridge[sql]'"


def test_every_other_module_can_be_imported_without_it() -> None:
    assert printed(EVERY_MODULE) == ""


def test_without_it_metrics_are_served(url: str) -> None:
    assert printed(METRICS, url) == "True"


def test_without_it_the_dashboard_starts(url: str) -> None:
    assert printed(DASHBOARD, url) == "[200, 200, 404]"


def test_without_it_a_dashboard_with_a_ledger_names_the_extra(url: str) -> None:
    assert printed(DASHBOARD_WITH_LEDGER, url) == (
        "the ledger needs SQLAlchemy: pip install 'expirebridge[sql]'"
    )
