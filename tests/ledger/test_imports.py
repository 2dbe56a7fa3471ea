"""Without a ledger nothing needs SQLAlchemy; with one, an error names the extra to install."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.kit.servers import AnyServer

PROGRAM = """
import sys
import expirebridge, expirebridge.cli.application, expirebridge.listener.listener
import expirebridge.bridge
expirebridge.cli.application.application()
import expirebridge.bridge, expirebridge.checks, expirebridge.observe.logs
for name in expirebridge.__all__:
    getattr(expirebridge, name)
print([name for name in sys.modules if name.startswith("sqlalchemy")])
"""

WITHOUT = """
import asyncio, importlib, json, pkgutil, sys, urllib.request
sys.modules["sqlalchemy"] = None
url, answers = sys.argv[1], {}

import httpx
from expirebridge import InvalidSetting
from expirebridge.web import app
async def look():
    transport = httpx.ASGITransport(app(url))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return [(await client.get(path)).status_code for path in ("/", "/series", "/ledger")]
answers["dashboard"] = asyncio.run(look())
try:
    app(url, ledger="sqlite:///ledger.db")
except InvalidSetting as error:
    answers["dashboard with a ledger"] = str(error)

from expirebridge.observe.metrics import Metrics
from expirebridge.settings import Settings
metrics = Metrics()
metrics.watch(Settings.read(url=url))
with urllib.request.urlopen(metrics.serve("127.0.0.1", 0)) as answer:
    answers["metrics"] = answer.read().decode()

try:
    from expirebridge.ledger import Ledger
except ModuleNotFoundError as error:
    answers["ledger"] = str(error)

import django, expirebridge
from django.conf import settings
apps = ("django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes")
settings.configure(INSTALLED_APPS=[*apps, "expirebridge.contrib.django"])
django.setup()
FOR_ALL = {"calls", "command", "metrics", "page", "rows", "testing", "words"}
FOR_ALL = {f"expirebridge.ledger.{name}" for name in FOR_ALL}
answers["not imported"] = []
for module in pkgutil.walk_packages(expirebridge.__path__, "expirebridge.", lambda name: None):
    of_the_ledger = module.name.startswith("expirebridge.ledger.") and module.name not in FOR_ALL
    if not of_the_ledger and module.name != "expirebridge.__main__":
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            answers["not imported"].append(f"{module.name}: {error}")
print(json.dumps(answers))
"""
"""In one process: to start one for each answer would cost most of a second."""

NEEDED = "the ledger needs SQLAlchemy: pip install 'expirebridge[sql]'"


def printed(program: str, *arguments: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_nothing_else_imports_sqlalchemy() -> None:
    assert printed(PROGRAM) == "[]"


@pytest.fixture(scope="module")
def without(shared_server: AnyServer) -> dict[str, Any]:
    """What a process without SQLAlchemy answers."""
    answers: dict[str, Any] = json.loads(printed(WITHOUT, shared_server.url))
    return answers


@pytest.mark.rest
def test_without_it_the_extra_is_named(without: dict[str, Any]) -> None:
    assert without["ledger"] == NEEDED


def test_every_other_module_can_be_imported_without_it(without: dict[str, Any]) -> None:
    assert without["not imported"] == []


@pytest.mark.rest
def test_without_it_metrics_are_served(without: dict[str, Any]) -> None:
    assert "expirebridge_server_up 1.0" in without["metrics"]


@pytest.mark.rest
def test_without_it_the_dashboard_starts(without: dict[str, Any]) -> None:
    assert without["dashboard"] == [200, 200, 404]


@pytest.mark.rest
def test_without_it_a_dashboard_with_a_ledger_names_the_extra(without: dict[str, Any]) -> None:
    assert without["dashboard with a ledger"] == NEEDED
