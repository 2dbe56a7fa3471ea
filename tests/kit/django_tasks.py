"""An app with Django's tasks, and programs that enqueue them and wait for their results."""

import json
from importlib.util import find_spec
from typing import Any

from tests.kit.django_project import HANDLERS, DjangoProject

API = "django.tasks" if find_spec("django.tasks") else "django_tasks"
BACKEND = "expirebridge.contrib.django.backend.ExpirebridgeBackend"
APPS = "" if API == "django.tasks" else 'INSTALLED_APPS += ["django_tasks"]\n'
TASKS = (
    HANDLERS
    + f"""
import datetime, time, uuid
from expirebridge import Discard, current_task, handler
from {API} import task

def helper(): ...

@task
def add(a, b):
    return a + b

@task(takes_context=True)
async def describe(context, *args):
    result = context.task_result
    return [context.attempt, result.id, result.args, result.status, result.worker_ids]

@task
@handler(process=True)
def apart():
    return {{"pid": os.getpid(), "pair": (1, 2)}}

class Declined(Exception):
    pass

@task
def decline(message):
    raise Declined(message)

@task(takes_context=True)
@handler(retry=[0, 0])
def third_time(context):
    if context.attempt < 3:
        raise Declined(f"attempt {{context.attempt}}")
    return [error.exception_class_path for error in context.task_result.errors]

@task
def discard():
    raise Discard("no use")

@task
def give(kind):
    return {{"large": "x" * 4095, "function": give, "nan": float("nan"), "most": "x" * 4094}}[kind]

@task
@handler(process=True, timeout=0.2)
def hang():
    time.sleep(60)

@task
def stay():
    _report("stay")
    if current_task().lapses == 0:
        time.sleep(60)
    return "done"

@task(takes_context=True)
@handler(typed=True)
def convert(context, id: uuid.UUID, *, day: datetime.date = datetime.date.min):
    return [type(id).__name__, day.year, context.task_result.args]

@task(backend="immediate")
def elsewhere(): ...

@task
def together():
    raise ExceptionGroup("both", [Declined("a"), ValueError("b")])

@task
def now():
    return time.time()
"""
)
WAIT = """
import dataclasses, json, time

def waited(*results):
    end = time.monotonic() + 60
    while not all(result.is_finished for result in results):
        assert time.monotonic() < end, results
        time.sleep(0.02)
        for result in results:
            result.refresh()
    return results

def errors(result):
    return [(one.exception_class_path, one.traceback) for one in result.errors]
"""


def set_tasks(project: DjangoProject, **more: Any) -> None:
    entry = {"BACKEND": BACKEND, "QUEUES": ["default", "emails"], **more}
    entries = {
        "default": entry,
        "immediate": {"BACKEND": f"{API}.backends.immediate.ImmediateBackend"},
    }
    project.more_settings = f"{APPS}TASKS = {entries!r}\n"


def asked(project: DjangoProject, program: str) -> Any:
    """What a program in the project prints last, which is JSON."""
    begin = f"{WAIT}\nfrom shop.tasks import *\nfrom {API} import default_task_backend\n"
    return json.loads(project.program(begin + program).splitlines()[-1])
