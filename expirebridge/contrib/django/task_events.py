"""Sends `task_finished` for Tasks that ended otherwise than by returning or raising.

A timeout, the end of a process, too many lapses and arguments that do not fit end a Task without
its function, which sends the signal otherwise.
"""

import asyncio
import logging
from functools import partial

from expirebridge.bridge import default_bridge
from expirebridge.contrib.django.database_connections import surround
from expirebridge.contrib.django.found_tasks import find_task
from expirebridge.contrib.django.task_functions import is_reported
from expirebridge.contrib.django.task_results import AttemptFailed, result_of
from expirebridge.contrib.django.tasks_api import task_finished
from expirebridge.hooks import End, Ended, Event, Lapsed

logger = logging.getLogger("expirebridge")


def hear(event: Event) -> None:
    """Send the signal, in a thread, if a Task failed and its function has not sent it."""
    match event:
        case Ended(end=End.FAILED, task=ours, error=error):
            task = find_task(ours.func)
            if task is None or (error is not None and is_reported(task, error, ours.attempt)):
                return
            id = ours.id
        case Lapsed(failed=True):
            id = event.id
        case _:
            return
    send = surround(partial(_send, id), is_async=False)
    asyncio.get_running_loop().run_in_executor(None, send)


def _send(id: str) -> None:
    try:
        found = default_bridge().get(id)
        task = find_task(found.func) if found is not None else None
        if found is None or task is None:
            return
        result = result_of(found, task)
        try:
            raise AttemptFailed(found.error or found.state)  # noqa: TRY301
        except AttemptFailed:  # Django's own receiver logs it
            task_finished.send_robust(type(task.get_backend()), task_result=result)
    except Exception:
        logger.exception("task_finished of %s was not sent", id)
