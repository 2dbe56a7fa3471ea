# /// script
# requires-python = ">=3.11"
# dependencies = ["celery[redis]==5.7.0", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "Celery (threads)"
# kind = "peer"
# worker = [
#   "celery --app {module} worker --pool threads --concurrency {concurrency} --loglevel WARNING",
# ]
# handlers = ["plain"]
# concurrency = "--concurrency 100, with the pool of threads"
# settings = """\
#   Redis as the broker, no result backend; a visibility timeout longer than any ETA, as the \
#   documentation asks for"""
# redelivery = 0 # the visibility timeout, which is longer than any ETA
# documentation = [
#   "https://docs.celeryq.dev/en/stable/getting-started/backends-and-brokers/redis.html",
#   "https://docs.celeryq.dev/en/stable/userguide/calling.html#eta-and-countdown",
#   "https://docs.celeryq.dev/en/stable/userguide/periodic-tasks.html",
# ]
# # There must be one beat only, says the documentation.
# recurring = [
#   "celery --app {module} worker --pool threads --concurrency {concurrency} --loglevel WARNING",
#   "celery --app {module} beat --schedule beat-{copy} --loglevel WARNING",
# ]
# ///
"""Celery: a task with an ETA goes to a worker at once, which keeps it in memory until then."""

from datetime import UTC, datetime

from celery import Celery
from celery.schedules import crontab

from benchmarks.kit import journal
from benchmarks.kit.server import SERIES, URL, USER

app = Celery("lab", broker=URL)
app.conf.broker_transport_options = {"visibility_timeout": 2 * 86400}


@app.task
def send(number: int, user: str) -> None:
    journal.handle_plain(number)


app.conf.beat_schedule = {
    f"series-{number}": {"task": send.name, "schedule": crontab(), "args": (number, USER)}
    for number in range(SERIES)
}


def schedule(number: int, due: float) -> None:
    send.apply_async((number, USER), eta=datetime.fromtimestamp(due, UTC))
