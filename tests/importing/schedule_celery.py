"""Schedules tasks with Celery, at the URL in BROKER, with what to do as JSON on stdin.

`celery --app schedule_celery worker` is its worker.
"""

import json
import os
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from celery import Celery, chain, group

app = Celery("old", broker=os.environ["BROKER"])
app.conf.task_default_queue = "celery"
app.conf.broker_transport_options = {
    "visibility_timeout": 2 * 86400,
    **json.loads(os.environ.get("TRANSPORT", "{}")),
}
TYPED = [datetime(2031, 1, 1, tzinfo=UTC), date(2031, 1, 1), Decimal("1.50"), UUID(int=7), b"hi"]


@app.task(name="mail.tasks.send")
def send(*args: Any, **kwargs: Any) -> None:
    pass


@app.task(name="mail.tasks.flaky", bind=True, max_retries=3)
def flaky(self: Any, *args: Any) -> None:
    raise self.retry(countdown=3600)


def schedule(what: dict[str, Any]) -> None:
    for one in what.get("send", ()):
        eta = one.pop("eta_ms", None)
        if eta is not None:
            one["eta"] = datetime.fromtimestamp(eta / 1000, UTC)
        if "naive_eta" in one:
            one["eta"] = datetime.fromisoformat(one.pop("naive_eta"))
        if "expires_ms" in one:
            one["expires"] = datetime.fromtimestamp(one.pop("expires_ms") / 1000, UTC)
        if one.pop("typed", False):
            one["args"] = TYPED
        app.send_task("mail.tasks.send", **one)
    for _ in range(what.get("flaky", 0)):
        flaky.apply_async((1,))
    if what.get("canvas"):
        later = {"countdown": 3600}
        chain(send.si(1), send.si(2)).apply_async(**later)
        group(send.si(3), send.si(4)).apply_async(**later)
        send.apply_async((5,), link=send.si(6), **later)


if __name__ == "__main__":
    schedule(json.load(sys.stdin))
