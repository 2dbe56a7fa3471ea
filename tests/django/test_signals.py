"""A task that waits for a signal in a Django project: made on commit, signalled by a view."""

import pytest

from tests.kit.django_project import DjangoProject

MODELS = """
from django.db import models, transaction

from expirebridge.contrib.django import make_task


class Order(models.Model):
    state = models.CharField(max_length=20, default="reserved")

    @classmethod
    def reserve(cls):
        with transaction.atomic():
            order = cls.objects.create()
            id = f"pay-{order.pk}"
            make_task("shop.release", [order.pk], "15m", id=id, on_signal="shop.ship")
        return order
"""
TASKS = """
from expirebridge import current_task, handler
from shop.models import Order


@handler
def release(pk):
    Order.objects.filter(pk=pk).update(state="released")


@handler
def ship(pk):
    paid = current_task().signal.payload["sum"]
    Order.objects.filter(pk=pk).update(state=f"shipped for {paid}")
"""
BY_BRIDGE = """
from expirebridge import Bridge
signal = Bridge().signal
"""
BY_ROW = """
from functools import partial
from expirebridge.ledger import Ledger
signal = partial(Ledger().signal, "default")
"""
VIEWS = """
import json

from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

@csrf_exempt
@require_POST
def paid(request, pk):
    event = json.loads(request.body)
    answer = signal(f"pay-{pk}", {"sum": event["sum"]}, by=event["payment"])
    return JsonResponse({"answer": answer}, status=200 if answer == "signalled" else 409)
"""
URLS = """
from django.urls import path
from shop.views import paid
urlpatterns = [path("orders/<int:pk>/paid", paid)]
"""
TESTS = """
from django.conf import settings
from django.test import TestCase

from expirebridge.testing import Clock
from shop.models import Order


class PaymentTest(TestCase):
    def setUp(self):
        self.clock = self.enterContext(Clock())
        if "LEDGER" in settings.EXPIREBRIDGE:
            self.clock.use_ledger("default")
        with self.captureOnCommitCallbacks(execute=True):
            self.order = Order.reserve()

    def pay(self, payment="p1"):
        told = self.client.post(
            f"/orders/{self.order.pk}/paid", {"sum": 90, "payment": payment}, "application/json"
        )
        return told.status_code, told.json()["answer"]

    def state(self):
        self.order.refresh_from_db()
        return self.order.state

    def test_a_payment_ships(self):
        self.clock.assert_made("shop.release", args=[self.order.pk], due_in="15m")
        self.clock.travel("14m")
        assert self.pay() == (200, "signalled")
        [ran] = self.clock.travel("1d", raising=True)
        assert (ran.func, self.state()) == ("shop.ship", "shipped for 90")
        assert self.pay() == (200, "signalled")
        assert self.pay("p2") == (409, "signalled before")

    def test_without_one_the_stock_is_released(self):
        [ran] = self.clock.travel("15m", raising=True)
        assert (ran.func, self.state()) == ("shop.release", "released")
        assert self.pay() == (409, "finished")

    def test_only_a_post_signals(self):
        assert self.client.get(f"/orders/{self.order.pk}/paid").status_code == 405
        assert len(self.clock.travel("15m")) == 1
"""


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    project.write("shop/models.py", MODELS)
    project.write("shop/tasks.py", TASKS)
    project.write("shop/tests.py", TESTS)
    project.write("mysite/urls.py", URLS)
    project.more_settings = 'ROOT_URLCONF = "mysite.urls"\n'
    return project


def test_a_view_signals_what_was_made_on_commit(shop: DjangoProject) -> None:
    shop.write("shop/views.py", BY_BRIDGE + VIEWS)
    assert "Ran 3 tests" in shop.manage("test", "shop")


def test_a_view_signals_a_row_of_the_ledger(shop: DjangoProject) -> None:
    shop.expirebridge["LEDGER"] = "default"
    shop.write("shop/views.py", BY_ROW + VIEWS)
    assert "Ran 3 tests" in shop.manage("test", "shop")
