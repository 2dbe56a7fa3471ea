"""The backend for Django's tasks: `django.tasks` of Django 6, here with others `django-tasks`."""

import pytest

from expirebridge import Bridge
from tests.kit.django_project import DjangoProject
from tests.kit.django_tasks import API, asked, set_tasks
from tests.kit.prepared_python import FreshPython


@pytest.mark.rest
def test_a_task_runs_at_its_time(shop: DjangoProject) -> None:
    with shop.listening():
        program = """
from datetime import timedelta
from django.utils import timezone
waited(now.using(run_after=timezone.now() - timedelta(days=1)).enqueue())
begin = time.time()
done = waited(
    now.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue(),
    now.using(run_after=timedelta(seconds=1)).enqueue(),
)
print(json.dumps([result.return_value - begin for result in done]))
"""
        at, after = asked(shop, program)
    assert at >= 0.99
    assert after >= 0.99


@pytest.mark.rest
def test_without_time_zones_times_are_of_the_project(shop: DjangoProject) -> None:
    shop.more_settings += "USE_TZ = False\nTIME_ZONE = 'Asia/Tokyo'\n"
    program = """
from datetime import datetime, timedelta
result = now.using(run_after=datetime.now() + timedelta(hours=1)).enqueue()
assert abs(datetime.now() - result.enqueued_at) < timedelta(minutes=1), result
assert default_task_backend.get_result(result.id).enqueued_at == result.enqueued_at
print(json.dumps(result.id))
"""
    id = asked(shop, program)
    with Bridge(shop.url) as bridge:
        task = bridge.get(id)
        assert task is not None
        assert task.created is not None
        assert 3500 < (task.due - task.created).total_seconds() < 3700


def test_a_queue_is_a_tag(shop: DjangoProject) -> None:
    program = """
results = [add.enqueue(1, 2), add.using(queue_name="emails").enqueue(3, 4)]
print(json.dumps([default_task_backend.get_result(one.id).task.queue_name for one in results]))
"""
    assert asked(shop, program) == ["default", "emails"]
    with Bridge(shop.url) as bridge:
        assert [task.tags for task in bridge.list(tag="queue:emails").tasks] == [("queue:emails",)]
        assert bridge.count().pending == 2


def test_a_priority_above_0_is_urgent(shop: DjangoProject) -> None:
    program = """
print(json.dumps([add.using(priority=n).enqueue(1, 2).id for n in (-1, 0, 1, 100)]))
"""
    ids = asked(shop, program)
    with Bridge(shop.url) as bridge:
        tasks = {task.id: task.urgent for task in bridge.list().tasks}
    assert [tasks[id] for id in ids] == [False, False, True, True]


REFUSED = [
    ("add.using(priority=101)", "priority"),
    ("add.using(queue_name='other')", "Queue 'other' is not valid"),
    ("add.enqueue(1)", "missing a required argument: 'b'"),
    ("add.enqueue('x' * 70_000, 'y')", "at most 65,536"),
    ("add.enqueue(2**64, 1)", "64"),
    ("elsewhere.using(backend='default').enqueue()", "a Task of another backend, 'immediate'"),
    ("convert.enqueue('no id')", "id"),
]


def test_what_cannot_be_is_refused(shop: DjangoProject) -> None:
    program = f"""
said = []
for call in {[call for call, _ in REFUSED]!r}:
    try:
        eval(call)
    except Exception as error:
        said.append([type(error).__name__, str(error)])
print(json.dumps(said))
"""
    for (name, message), (_, words) in zip(asked(shop, program), REFUSED, strict=True):
        assert name in {"InvalidTask", "InvalidTaskError"}
        assert words in message


def test_only_tasks_can_be_called(shop: DjangoProject) -> None:
    shop.write("shop/jobs.py", f"from {API} import task\n@task\ndef clean(): ...\n")
    names = shop.program(
        "from expirebridge.handlers import Registry\nfrom expirebridge import Settings\n"
        "print(*[one.name for one in Registry.of(Settings.read())])"
    ).split()
    assert "shop.add" in names
    assert "shop.helper" not in names
    assert not [name for name in names if "clean" in name]
    program = """
from shop.jobs import clean
try:
    clean.enqueue()
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
    name, message = asked(shop, program)
    assert name in {"InvalidTask", "InvalidTaskError"}
    assert "Move the function into one, or list its module, too" in message
    assert "shop.jobs.clean cannot be enqueued" not in shop.manage("check")  # it is not imported
    shop.write("shop/models.py", "import shop.jobs")
    assert "shop.jobs.clean cannot be enqueued" in shop.manage("check")
    shop.expirebridge["MODULES"] = ["shop.jobs"]
    assert "no issues" in shop.manage("check")
    assert asked(shop, "from shop.jobs import clean\nprint(json.dumps(clean.enqueue().status))")


BESIDE_TASKS = f"""
from {API} import task
from expirebridge import handler

@task
def send(): ...

def remind(pk): ...

@handler
def marked(pk): ...
"""
NO_HANDLER = "its module defines a Task of Django, and beside Tasks only what @handler marks is"


@pytest.mark.parametrize("given", ["remind", "'shop.remind'"])
@pytest.mark.parametrize("module", ["expirebridge", "expirebridge.contrib.django"])
def test_a_plain_function_beside_tasks_is_refused_with_the_reason(
    project: DjangoProject, module: str, given: str
) -> None:
    project.write("shop/tasks.py", BESIDE_TASKS)
    set_tasks(project)
    program = f"""
from {module} import make_task
make_task(marked, [1], "1h")
make_task("shop.marked", [1], "1h")
make_task("shop.send", [], "1h")
make_task("shop.elsewhere", [], "1h")  # a program of another version may have it
try:
    make_task({given}, [1], "1h")
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
    name, message = asked(project, program)
    assert name == "InvalidTask"
    assert NO_HANDLER in message
    assert "mark remind" in message


def test_a_task_given_to_make_task_is_told_how_it_is_enqueued(shop: DjangoProject) -> None:
    program = """
from expirebridge import make_task
said = []
for given in (add, add.using(queue_name="emails"), elsewhere):
    try:
        make_task(given, [1, 2], "1h")
    except Exception as error:
        said.append(str(error))
print(json.dumps(said))
"""
    ours, again, other = asked(shop, program)
    assert "a Task of Django: use add.enqueue(...), or give its name, 'shop.add'" in ours
    assert again == ours
    assert "give a handler, or its name" in other


def test_a_task_is_run_by_a_signal_if_it_is_given_by_its_name(shop: DjangoProject) -> None:
    program = """
from expirebridge import make_task
try:
    make_task("shop.describe", [1, 2], "1h", on_signal=add)
except Exception as error:
    said = str(error)
task = make_task("shop.describe", [1, 2], "1h", on_signal="shop.add")
print(json.dumps([said, task.on_signal]))
"""
    said, on_signal = asked(shop, program)
    assert said.startswith(
        "on_signal=add: it is a Task of Django: use add.enqueue(...), or give its name, 'shop.add'"
    )
    assert on_signal == "shop.add"


def test_a_module_may_list_its_tasks(project: DjangoProject) -> None:
    project.write(
        "shop/tasks.py",
        f"""
from {API} import task

@task
def send(): ...

urgent = send.using(run_after=None)

@task
def erase(): ...

HANDLERS = [send]
""",
    )
    set_tasks(project)
    listed = project.manage("expirebridge", "handlers", "--json")
    assert "shop.send" in listed
    assert "erase" not in listed
    assert "urgent" not in listed


def test_a_name_in_redis_is_looked_up_and_not_imported(shop: DjangoProject) -> None:
    program = """
from expirebridge import Bridge
from shop.tasks import helper
import sys
bridge = Bridge(tasks="nowhere", unknown="off")  # of another program
names = ("antigravity.geohash", "shop.helper", "shop.os")
made = [bridge.make_task(name, [], 3600).id for name in names]
found = []
for id in [*made, "none", "no id?"]:
    try: default_task_backend.get_result(id)
    except Exception as error: found.append(type(error).__name__)
assert "antigravity" not in sys.modules
print(json.dumps(found))
"""
    assert asked(shop, program) == ["TaskResultDoesNotExist"] * 5


def test_the_ledger_makes_a_task_with_the_transaction(shop: DjangoProject) -> None:
    shop.expirebridge["LEDGER"] = "default"
    shop.run("-m", "expirebridge", "ledger", "create", DJANGO_SETTINGS_MODULE="mysite.settings")
    with shop.listening():
        program = """
from django.db import transaction
try:
    with transaction.atomic():
        lost = add.enqueue(0, 0)
        assert default_task_backend.get_result(lost.id).status == "READY"
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
with transaction.atomic():
    kept = add.using(queue_name="emails").enqueue(1, 2)
[kept] = waited(kept)
found = default_task_backend.get_result(kept.id)
try:
    default_task_backend.get_result(lost.id)
except Exception as error:
    print(json.dumps([kept.return_value, found.task.queue_name, type(error).__name__]))
"""
        assert asked(shop, program) == [3, "emails", "TaskResultDoesNotExist"]


@pytest.mark.parametrize("horizon", [None, "1d"])
def test_a_task_that_is_due_in_a_year_has_a_result(
    shop: DjangoProject, horizon: str | None
) -> None:
    """With a horizon, its row is kept back: Redis does not know it."""
    shop.expirebridge |= {"LEDGER": "default"} | ({"LEDGER_HORIZON": horizon} if horizon else {})
    shop.run("-m", "expirebridge", "ledger", "create", DJANGO_SETTINGS_MODULE="mysite.settings")
    with shop.listening():
        program = """
from datetime import UTC, datetime, timedelta
from expirebridge import Bridge
year = datetime.now(UTC) + timedelta(days=365)
far = add.using(queue_name="emails", run_after=year).enqueue(1, 2)
waited(add.enqueue(1, 2))  # which was committed later
found = default_task_backend.get_result(far.id)
print(json.dumps([Bridge().get(far.id) is None, found.status, found.task.queue_name, found.args]))
"""
        assert asked(shop, program) == [horizon is not None, "READY", "emails", [1, 2]]


def test_a_task_that_ends_while_it_is_looked_for_is_found(shop: DjangoProject) -> None:
    shop.expirebridge["LEDGER"] = "default"
    shop.run("-m", "expirebridge", "ledger", "create", DJANGO_SETTINGS_MODULE="mysite.settings")
    with shop.listening():
        program = """
from expirebridge.contrib.django import backend
made = add.enqueue(1, 2)
bridge, looked = backend.default_bridge(), backend._unrelayed
def after_the_end(id):
    while looked(id) is not None:
        time.sleep(0.02)
class Early:
    def __init__(self):
        self.answers = [None]  # as Redis answers before the relay
    def get(self, id):
        return self.answers.pop() if self.answers else bridge.get(id)
early = Early()
backend.default_bridge, backend._unrelayed = lambda: early, after_the_end
print(json.dumps(default_task_backend.get_result(made.id).id == made.id))
"""
        assert asked(shop, program) is True


@pytest.mark.rest
def test_async_variants_do_the_same(shop: DjangoProject) -> None:
    with shop.listening():
        program = """
import asyncio
async def main():
    result = await add.aenqueue(1, b=2)
    end = time.monotonic() + 60
    while not result.is_finished and time.monotonic() < end:
        await asyncio.sleep(0.02)
        await result.arefresh()
    return result, await add.aget_result(result.id)
result, found = asyncio.run(main())
assert result == found
print(json.dumps(result.return_value))
"""
        assert asked(shop, program) == 3


CHECKED = {
    "E101": "INSTALLED_APPS.remove('expirebridge.contrib.django')",
    "E102": "TASKS['default']['OPTIONS'] = {'url': 'redis://other'}",
    "E103": "TASKS['default']['QUEUES'] = ['default', 'two words']",
}


@pytest.mark.parametrize("id", [pytest.param("E101", marks=pytest.mark.rest), "E102", "E103"])
def test_the_settings_are_checked(shop: DjangoProject, id: str) -> None:
    shop.more_settings += CHECKED[id]
    if id == "E101":  # without our app, nobody has Django 6 check TASKS before it has been imported
        shop.write("shop/models.py", f"import {API}")
        shop.python = FreshPython()
    assert f"expirebridge.{id}" in shop.manage("check", code=1)


def test_a_test_travels_to_a_task(shop: DjangoProject) -> None:
    shop.write("shop/tests.py", TESTS.replace("API", API))
    shop.more_settings += (
        "INSTALLED_APPS += ['django.contrib.auth', 'django.contrib.contenttypes']\n"
    )
    assert "OK" in shop.manage("test")


TESTS = """
from datetime import timedelta
from django.contrib.contenttypes.models import ContentType
from django.test import TestCase
from expirebridge.testing import Clock
from API.signals import task_finished
from shop.tasks import add, decline

class Test(TestCase):
    def setUp(self):
        self.clock = self.enterContext(Clock())

    def test_travel(self):
        told = []
        def hear(task_result, **_):
            row = ContentType.objects.create(app_label=task_result.id)
            told.append((task_result.status, row.pk))
        task_finished.connect(hear)
        self.addCleanup(task_finished.disconnect, hear)
        result = add.using(run_after=timedelta(hours=24)).enqueue(1, 2)
        failed = decline.enqueue("no")
        self.clock.travel("23h")
        result.refresh()
        self.assertEqual(result.status, "READY")
        [ran] = self.clock.travel("1h")
        result.refresh()
        failed.refresh()
        self.assertEqual((result.return_value, ran.result, failed.status), (3, 3, "FAILED"))
        self.assertEqual([status for status, _ in told], ["FAILED", "SUCCESSFUL"])
        self.assertEqual(ContentType.objects.filter(model="").count(), 2)
"""
