"""The pages of the admin: what they show, to whom, and what they change."""

import pytest

from tests.kit.django_project import DjangoProject

ADMIN = """
INSTALLED_APPS += [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.sessions", "django.contrib.messages",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
ROOT_URLCONF = "mysite.urls"
STATIC_URL = "static/"
"""
URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""
TESTS = """
from io import StringIO

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import TestCase
from django.utils import timezone

from expirebridge.contrib.django.admin import NOT_HERE
from expirebridge.task.fields import FIELDS
from expirebridge.testing import Clock

TASKS = "/admin/expirebridge/redistask/"
SERIES = "/admin/expirebridge/redisseries/"
FORGET = {"action": "forget", "confirmed": "yes"}


class AdminTest(TestCase):
    def setUp(self):
        self.clock = self.enterContext(Clock())
        self.bridge = self.clock.bridge

    def login(self, *permissions):
        user = User.objects.create_user("ann", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        self.client.force_login(user)

    def fail(self, id="f@1"):
        self.bridge.make_task("shop.fail", ["<b>"], 0, id=id, retry=[])
        self.clock.travel(0)

    def test_tasks_are_listed_by_state(self):
        self.login("view_redistask")
        self.bridge.make_task("shop.note", [1], "1h", id="a", tags=["red"])
        self.fail()
        self.assertContains(self.client.get(TASKS), "shop.note")
        failed = self.client.get(TASKS, {"state": "failed"})
        self.assertContains(failed, "f@1")
        self.assertNotContains(failed, "shop.note")
        self.assertNotContains(failed, "checkbox")
        self.assertContains(self.client.get(TASKS, {"func": "shop.other"}), "No pending task")
        self.assertContains(self.client.get("/admin/"), "Tasks")

    def test_pages_follow_each_other(self):
        self.login("view_redistask")
        for number in range(60):
            self.bridge.make_task("shop.note", [], "1h", id=f"n{number}")
        first = self.client.get(TASKS)
        self.assertContains(first, "/change/", 50)
        second = self.client.get(TASKS, {"cursor": first.context["cursor"]})
        self.assertContains(second, "/change/", 10)

    def test_a_task_has_its_history_and_what_is_dangerous_is_escaped(self):
        self.login("view_redistask")
        self.fail()
        page = self.client.get(TASKS + "f_401/change/")
        self.assertContains(page, "ZeroDivisionError")
        self.assertContains(page, "&lt;b&gt;")
        self.assertContains(page, "failed")
        self.assertNotContains(page, "Run now")
        self.assertEqual(self.client.get(TASKS + "nothing/change/").status_code, 404)

    def test_a_task_has_each_field_that_is_described_for_a_page(self):
        self.login("view_redistask")
        self.bridge.make_task("shop.note", [1], 0, id="a", tags=["red"])
        self.bridge.make_task("shop.note", [1], "1h", id="c", on_signal="shop.fail", urgent=True)
        self.fail("b")
        self.clock.travel(0)
        pages = [self.client.get(TASKS + f"{id}/change/") for id in "abc"]
        for field in FIELDS:
            if field.order and field.name not in NOT_HERE:
                row = f'<th scope="row">{field.label}</th>'
                assert any(row in page.content.decode() for page in pages), field

    def test_a_task_has_what_capabilities_add_to_it(self):
        self.login("view_redistask")
        self.bridge.make_task("shop.note", [1], "1h", id="a", on_signal="shop.fail")
        waits = self.client.get(TASKS + "a/change/")
        self.assertContains(waits, '<th scope="row">On a signal</th><td>')
        self.assertContains(waits, "shop.fail")
        self.bridge.signal("a", {"sum": "<b>"}, by="ann <i>")
        came = self.client.get(TASKS + "a/change/")
        self.assertNotContains(came, "On a signal")
        for text in ("&quot;sum&quot;: &quot;&lt;b&gt;&quot;", "ann &lt;i&gt;", "Instead of"):
            self.assertContains(came, text)
        self.bridge.make_group("g", [{"func": "shop.note", "delay": "1h"}])
        [member] = self.bridge.list(func="shop.note").tasks
        page = self.client.get(TASKS + member.id.replace("@", "_40") + "/change/")
        self.assertContains(page, '<th scope="row">Group</th>')

    def test_failed_tasks_run_again_and_are_forgotten_by_those_who_may(self):
        self.login("view_redistask", "change_redistask")
        self.fail("a")
        self.fail("b")
        failed = TASKS + "?state=failed"
        self.assertContains(self.client.get(failed), "checkbox", 2)
        done = self.client.post(failed, {"action": "retry", "id": ["a", "x"]}, follow=True)
        self.assertContains(done, "Task a: due now")
        self.assertContains(done, "Task x: not found")
        assert self.bridge.get("a").state == "pending"
        asking = self.client.post(TASKS + "b/change/", {"action": "forget"}, follow=True)
        self.assertContains(asking, "Forget 1 failed task?")
        assert LogEntry.objects.count() == 1
        done = self.client.post(TASKS + "b/change/", FORGET, follow=True)
        self.assertContains(done, "Task b: to be forgotten: a listener removes it in its next pass")
        self.assertContains(self.client.get(failed), ", to be forgotten", 1)
        page = self.client.get(TASKS + "b/change/")
        self.assertContains(page, "to be forgotten: a listener")
        self.assertContains(page, 'value="retry"')
        self.assertNotContains(page, 'value="forget"')
        done = self.client.post(failed, FORGET | {"id": ["b"]}, follow=True)
        self.assertContains(done, "Task b: already to be forgotten")
        assert LogEntry.objects.count() == 2
        refused = self.client.post(failed, {"action": "drop"})
        self.assertContains(refused, "action=", status_code=400)

    def test_forgetting_asks_first(self):
        self.login("view_redistask", "change_redistask")
        self.fail("a")
        self.fail("f@1")
        failed = TASKS + "?state=failed"
        asked = {"action": "forget", "id": ["a", "f@1"]}
        for place, ids in ((failed, ["a", "f@1"]), (TASKS + "a/change/", ["a"])):
            page = self.client.post(place, asked)
            self.assertContains(page, 'name="confirmed"', 1)
            for id in ids:
                self.assertContains(page, f'name="id" value="{id}"', 1)
            assert LogEntry.objects.count() == 0
            self.assertNotContains(self.client.get(failed), "to be forgotten")
        none = self.client.post(failed, {"action": "forget"}, follow=True)
        self.assertContains(none, "Select the tasks first")
        self.client.post(failed, asked | FORGET)
        self.assertContains(self.client.get(failed), ", to be forgotten", 2)

    def test_a_task_that_failed_again_can_be_forgotten_again(self):
        self.login("view_redistask", "change_redistask")
        self.fail("a")
        page = TASKS + "a/change/"
        self.client.post(page, FORGET)
        self.assertNotContains(self.client.get(page), 'value="forget"')
        self.clock.travel("1h")
        self.client.post(page, {"action": "retry"})
        self.clock.travel("1s")
        self.assertContains(self.client.get(page), 'value="forget"')
        self.assertNotContains(self.client.get(page), "to be forgotten")

    def test_times_have_seconds_and_a_part_of_a_name_is_answered(self):
        self.login("view_redistask")
        self.bridge.make_task("shop.note", [], "1h", id="a")
        due = timezone.localtime(self.bridge.get("a").due).strftime("%Y-%m-%d %H:%M:%S")
        self.assertContains(self.client.get(TASKS), due)
        self.assertContains(self.client.get(TASKS + "a/change/"), due)
        found = self.client.get(TASKS, {"func": "note"})
        self.assertContains(found, "No pending task of note: give the whole name of a function")

    def test_who_may_only_look_changes_nothing(self):
        self.login("view_redistask")
        self.fail("a")
        for place in (TASKS, TASKS + "a/change/"):
            told = self.client.post(place, {"action": "retry", "id": ["a"]})
            self.assertEqual(told.status_code, 403)
        assert self.bridge.get("a").state == "failed"
        self.assertEqual(self.client.get(TASKS + "add/").status_code, 403)

    def test_others_see_nothing(self):
        self.assertEqual(self.client.get(TASKS).status_code, 302)
        self.login()
        for place in (TASKS, TASKS + "a/change/", SERIES):
            self.assertEqual(self.client.get(place).status_code, 403)

    def test_series(self):
        self.login("view_redisseries")
        self.assertContains(self.client.get(SERIES), "There is no series")
        self.bridge.schedule("nightly", "shop.note", [1], cron="30 2 * * *")
        self.assertContains(self.client.get(SERIES), "nightly")

    def test_a_wrong_state_is_explained(self):
        self.login("view_redistask")
        self.assertContains(self.client.get(TASKS, {"state": "x"}), "state=", status_code=400)

    def test_dumpdata_asks_for_no_table(self):
        call_command("dumpdata", "expirebridge", "--all", stdout=StringIO())
"""


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    project.more_settings = ADMIN
    project.write("mysite/urls.py", URLS)
    project.write("shop/tasks.py", "def note(*_): return 7\ndef fail(*_): 1 / 0\n")
    project.write("shop/tests.py", TESTS)
    return project


def test_the_pages(shop: DjangoProject) -> None:
    assert "Ran 14 tests" in shop.manage("test", "shop")
    assert "No changes detected" in shop.manage("makemigrations", "--check")
