"""What Django does at the begin and the end of a request is done around each attempt."""

import pytest

from expirebridge import Bridge
from tests.kit.django_project import HANDLERS, DjangoProject

MODELS = """
from django.db import models

class Order(models.Model):
    name = models.CharField(max_length=20)
"""
CACHE = """
from django.core.cache.backends.base import BaseCache

class Cache(BaseCache):
    def __init__(self, *args):
        super().__init__({})
    def get(self, *_, **__):
        return None
    def close(self, **_):
        from shop.tasks import _report
        _report("cache closed")
"""
TASKS = (
    HANDLERS
    + """
import functools
from asgiref.sync import sync_to_async
from django.core.cache import cache
from django.db import connection, transaction
from expirebridge import handler
from shop.models import Order

def _leave():
    transaction.atomic().__enter__()
    Order.objects.create(name="lost")

def leaves():
    _leave()

async def aleaves():
    await sync_to_async(_leave)()

@handler(process=True)
def leaves_apart():
    _leave()

def leaves_two_and_fails():
    _leave()
    transaction.atomic().__enter__()
    raise LookupError("its own")

def turns_autocommit_off():
    transaction.set_autocommit(False)
    Order.objects.create(name="kept")
    transaction.commit()

def writes(name):
    with transaction.atomic():
        Order.objects.create(name=name)
    _report(f"{len(connection.queries)} queries")

def caches():
    cache.get("a")

async def acaches():
    await sync_to_async(cache.get)("a")
"""
)


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    project.write("shop/models.py", MODELS)
    project.write("shop/caches.py", CACHE)
    project.write("shop/tasks.py", TASKS)
    project.more_settings = "DEBUG = True\nCACHES = {'default': {'BACKEND': 'shop.caches.Cache'}}\n"
    project.manage("makemigrations", "shop")
    project.manage("migrate")
    return project


def names(project: DjangoProject) -> list[str]:
    """Those of the orders that are committed."""
    told = project.program(
        "from shop.models import Order; print(*[o.name for o in Order.objects.all()])"
    )
    return told.split()


def test_a_transaction_that_is_left_open_fails_its_attempt_and_no_other(
    shop: DjangoProject,
) -> None:
    leaving = ["leaves", "aleaves", "leaves_apart", "leaves_two_and_fails", "turns_autocommit_off"]
    with shop.listening("--concurrency", "1", "--processes", "1"), Bridge(shop.url) as bridge:
        for name in leaving:
            bridge.make_task(f"shop.{name}", [], 0, id=name, retry=[])
            state = "succeeded" if name == "turns_autocommit_off" else "failed"
            error = shop.until_state(name, state).error
            bridge.make_task("shop.writes", [name], 0, id=f"after-{name}", retry=[])
            shop.until_state(f"after-{name}", "succeeded")
            if state == "succeeded":
                continue
            assert error is not None
            if name.endswith("fails"):
                assert "LookupError: its own" in error
            else:
                assert "left a transaction of the database 'default' open" in error
    assert names(shop) == [*leaving[:4], "kept", leaving[4]]


def test_with_debug_the_queries_of_former_attempts_are_forgotten(shop: DjangoProject) -> None:
    with shop.listening("--concurrency", "1"), Bridge(shop.url) as bridge:
        for number in range(5):
            bridge.make_task("shop.writes", [str(number)], 0)
            assert shop.report() == "3 queries"


@pytest.mark.parametrize("name", ["caches", "acaches"])
def test_caches_are_closed(shop: DjangoProject, name: str) -> None:
    with shop.listening("--concurrency", "1"), Bridge(shop.url) as bridge:
        bridge.make_task(f"shop.{name}", [], 0)
        assert shop.report() == "cache closed"


DONE = {"reset_queries", "close_old_connections", "close_caches"}
"""What is done around each attempt."""
NEEDLESS = {"reset_urlconf"}
"""What a context variable keeps, which belongs to one attempt."""
RECEIVERS = """
from django.core.signals import request_finished, request_started
import django.core.cache, django.core.handlers.wsgi, django.core.handlers.asgi
for signal in (request_started, request_finished):
    for _, receiver, *_ in signal.receivers:
        function = receiver()
        if function.__module__.startswith("django."):
            print("does", function.__name__)
"""


def test_nothing_else_is_done_around_requests(project: DjangoProject) -> None:
    """A version of Django that did more would be noticed here."""
    told = project.program(RECEIVERS)
    assert {
        line.split()[1] for line in told.splitlines() if line.startswith("does ")
    } == DONE | NEEDLESS
