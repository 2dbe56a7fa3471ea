# /// script
# requires-python = ">=3.11"
# dependencies = ["dbos==3.4.0", "psycopg[binary]==3.3.9"]
#
# [tool.lab]
# title = "DBOS"
# kind = "peer"
# place = "database"
# databases = ["postgresql"]
# prepare = ["dbos migrate --sys-db-url {database}"]
# worker = ["python -m {module}"]
# handlers = ["async", "plain"]
# concurrency = "worker_concurrency = 100: coroutines, or threads for plain functions"
# settings = """\
#   a queue looked at every 0.25 s: each look takes no more than worker_concurrency allows, which \
#   would be 100 tasks a second at the default of 1 s; what is delayed comes into the queue every \
#   second, which cannot be set; PostgreSQL has its defaults: each commit waits for the disk"""
# redelivery = 1 # when a process with the same executor_id starts
# only = ["schedule_rate", "lateness", "lateness_pending", "burst", "crash"]
# because = "Redis's memory is counted, and its tasks are elsewhere"
# documentation = [
#   "https://docs.dbos.dev/python/examples/queue-worker",
#   "https://docs.dbos.dev/python/reference/queues",
#   "https://docs.dbos.dev/python/reference/client",
# ]
# ///
"""DBOS: workflows are rows of PostgreSQL, delayed until they come into a queue there.

It is measured rather than pg-boss, whose current version 12 needs Node.js 22.12; the lab has 20.
"""

import threading
import time

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

from benchmarks.kit import journal
from benchmarks.kit.orders import CONNINFO
from benchmarks.kit.server import CONCURRENCY, HANDLER, USER

QUEUE = "lab"
WORKFLOW = {"async": "send", "plain": "send_plain"}[HANDLER]
CONFIG: DBOSConfig = {
    "name": "lab",
    "application_version": "1",
    "system_database_url": CONNINFO,
    "log_level": "WARNING",
}


@DBOS.workflow()
async def send(number: int, user: str) -> None:
    await journal.handle(number)


@DBOS.workflow()
def send_plain(number: int, user: str) -> None:
    journal.handle_plain(number)


class Producer:
    client: DBOSClient


def open() -> None:
    Producer.client = DBOSClient(system_database_url=CONNINFO)


def options(due: float | None) -> EnqueueOptions:
    wanted: EnqueueOptions = {"queue_name": QUEUE, "workflow_name": WORKFLOW}
    if due is not None:
        wanted["delay_seconds"] = max(due - time.time(), 0)
    return wanted


def schedule(number: int, due: float) -> None:
    Producer.client.enqueue(options(due), number, USER)


if __name__ == "__main__":
    DBOS(config=CONFIG)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=0.25)
    threading.Event().wait()
