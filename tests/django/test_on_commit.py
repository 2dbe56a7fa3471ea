"""`make_task` of a Django project: when the transaction commits, in tests and outside of them."""

import pytest

from tests.kit.django_project import DjangoProject

TASKS = """
from shop.models import Order

def remind(pk):
    Order.objects.filter(pk=pk).update(reminded=True)

async def aremind(pk):
    await Order.objects.filter(pk=pk).aupdate(reminded=True)
"""
MODELS = """
from django.db import models

class Order(models.Model):
    reminded = models.BooleanField(default=False)
"""
TESTS = """
from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from expirebridge import InvalidTask, TaskExists
from expirebridge.contrib.django import amake_task, make_task
from expirebridge.testing import Clock
from shop.models import Order
from shop.tasks import aremind, remind


class Lost(Exception):
    pass


class Cases:
    databases = {"default", "other"}

    def setUp(self):
        self.clock = self.enterContext(Clock())

    def made(self):
        return [task.id for task in self.clock.made()]

    def test_a_block_that_is_rolled_back_makes_nothing(self):
        with self.commits(), transaction.atomic():
            make_task(remind, [1], "1h", id="kept")
            try:
                with transaction.atomic():
                    make_task(remind, [2], "1h", id="gone")
                    raise Lost
            except Lost:
                pass
            assert self.made() == []
        assert self.made() == ["kept"]

    def test_using_says_whose_commit_that_is(self):
        with self.commits("other"), transaction.atomic(using="other"):
            with self.commits(), transaction.atomic():
                make_task(remind, [1], "1h", id="a", using="other")
            assert self.made() == []
        assert self.made() == ["a"]

    def test_what_cannot_be_is_refused_at_once(self):
        with transaction.atomic():
            with self.assertRaisesRegex(InvalidTask, "give either delay or at"):
                make_task(remind, [1])
            with self.assertRaisesRegex(InvalidTask, "missing a required argument"):
                make_task(remind, [], "1h")
            with self.assertRaisesRegex(TypeError, "dealy"):
                make_task(remind, [1], dealy="1h")

    def test_a_plain_handler_runs_in_the_transaction_of_the_test(self):
        order = Order.objects.create()
        with self.commits(), transaction.atomic():
            make_task(remind, [order.pk], "24h", tags=["order"])
        self.clock.assert_made(remind, args=[order.pk], due_in="24h")
        self.clock.travel("1d", raising=True)
        order.refresh_from_db()
        assert order.reminded

    def place(self, order, handler=aremind):
        with self.commits():
            make_task(handler, [order.pk], "24h")

    async def test_a_plain_handler_does_so_in_an_async_test(self):
        order = await Order.objects.acreate()
        await sync_to_async(self.place)(order, remind)
        with self.assertNoLogs("expirebridge", "WARNING"):
            self.clock.assert_made(remind)
            await self.clock.atravel("1d", raising=True)
        await order.arefresh_from_db()
        assert order.reminded

    async def test_an_async_handler_does_so_in_an_async_test(self):
        order = await Order.objects.acreate()
        await sync_to_async(self.place)(order)
        await self.clock.atravel("1d", raising=True)
        await order.arefresh_from_db()
        assert order.reminded


class InTest(Cases, TestCase):
    def commits(self, using="default"):
        return self.captureOnCommitCallbacks(using=using, execute=True)


class Committed(Cases, TransactionTestCase):
    def commits(self, using="default"):
        from contextlib import nullcontext
        return nullcontext()

    def test_without_a_transaction_it_is_made_at_once(self):
        make_task(remind, [1], "1h", id="a")
        assert self.made() == ["a"]

    async def test_in_async_code(self):
        await amake_task(remind, [1], "1h", id="a")
        assert self.made() == ["a"]

    def test_what_the_server_refuses_is_raised_at_the_commit(self):
        make_task(remind, [1], "1h", id="a")
        with self.assertRaises(TaskExists), transaction.atomic():
            make_task(remind, [1], "1h", id="a")
"""


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    other = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(project.folder / "other.sqlite3")}
    project.databases["other"] = other
    project.write("shop/models.py", MODELS)
    project.write("shop/tasks.py", TASKS)
    project.write("shop/tests.py", TESTS)
    return project


def test_tasks_are_made_when_their_transaction_commits(shop: DjangoProject) -> None:
    told = shop.manage("test", "shop")
    assert "Ran 15 tests" in told


def test_its_options_are_those_of_a_bridge() -> None:
    from inspect import signature

    from expirebridge import Bridge
    from expirebridge.contrib.django import TaskOptions

    others = {"self", "func", "args", "delay"}
    assert set(TaskOptions.__annotations__) == set(signature(Bridge.make_task).parameters) - others


MISTAKES = """
from django.test import TestCase

from expirebridge.contrib.django import make_task
from expirebridge.errors import LedgerUnsuitable
from expirebridge.testing import Clock


class Mistakes(TestCase):
    def setUp(self):
        self.clock = self.enterContext(Clock())

    def test_a_commit_that_never_comes_is_explained(self):
        make_task("shop.remind", [1], "1h")
        with self.assertRaisesRegex(AssertionError, "captureOnCommitCallbacks.execute=True"):
            self.clock.assert_made("shop.remind")

    def test_a_ledger_that_is_not_set_is_explained(self):
        with self.assertRaisesRegex(LedgerUnsuitable, "'LEDGER'. is not set in this project"):
            self.clock.use_ledger("default")
"""


def test_what_a_first_test_gets_wrong_is_explained(project: DjangoProject) -> None:
    project.write("shop/tasks.py", "def remind(pk): ...")
    project.write("shop/tests.py", MISTAKES)
    assert "Ran 2 tests" in project.manage("test", "shop")
