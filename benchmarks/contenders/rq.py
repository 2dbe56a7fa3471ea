# /// script
# requires-python = ">=3.11"
# dependencies = ["rq==3.0.0", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "RQ"
# kind = "peer"
# worker = [
#   "rq worker --with-scheduler --url {url} --quiet",
#   "rq worker --url {url} --quiet",
#   "rq worker --url {url} --quiet",
#   "rq worker --url {url} --quiet",
#   "rq worker --url {url} --quiet",
#   "rq worker --url {url} --quiet",
#   "rq worker --url {url} --quiet",
#   "rq worker --url {url} --quiet",
# ]
# handlers = ["plain"]
# concurrency = "a worker runs one task at a time, in a process made for it: eight workers"
# settings = "defaults; one of the workers also schedules"
# redelivery = 1150 # it takes over from a scheduler that is gone every 600 s, when a wait for a job
# # has ended, which takes 405 s; and then has to work off what waited
# documentation = ["https://python-rq.org/docs/scheduling/", "https://python-rq.org/docs/workers/"]
# ///
"""RQ: its scheduler looks once a second for what is due, and puts it into a queue."""

from datetime import UTC, datetime

from redis import Redis
from rq import Queue

from benchmarks.kit import journal
from benchmarks.kit.server import URL, USER

queue = Queue(connection=Redis.from_url(URL))


def send(number: int, user: str) -> None:
    journal.handle_plain(number)


def schedule(number: int, due: float) -> None:
    queue.enqueue_at(datetime.fromtimestamp(due, UTC), send, number, USER)
