# /// script
# requires-python = ">=3.11"
# dependencies = ["dbos==3.4.0", "psycopg[binary]==3.3.9"]
#
# [tool.lab]
# title = "DBOS, enqueued in a transaction"
# kind = "peer"
# place = "database"
# databases = ["postgresql"]
# prepare = ["dbos migrate --sys-db-url {database}"]
# worker = ["python -m benchmarks.contenders.dbos"]
# driver = "python -m benchmarks.kit.ordering {module}"
# handlers = ["async"]
# concurrency = "worker_concurrency = 100: coroutines"
# settings = """\
#   the queue as above, looked at every 0.25 s; the producer has a Session of SQLAlchemy, and \
#   enqueues one task with each call"""
# redelivery = 1 # when a process with the same executor_id starts
# only = ["inserts", "commit_lag", "commit_crash"]
# because = "it is compared where tasks belong to a transaction"
# documentation = [
#   "https://docs.dbos.dev/python/reference/client",
#   "https://github.com/dbos-inc/dbos-transact-py/pull/709",
# ]
# ///
"""DBOS, whose workflows are enqueued in the caller's transaction, in the same database."""

from dbos import DBOSClient
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from benchmarks.contenders.dbos import options
from benchmarks.kit.orders import CONNINFO, DATABASE, INSERT, Tasks, committed, order
from benchmarks.kit.server import USER

engine = create_engine(DATABASE)
client = DBOSClient(system_database_url=CONNINFO)


def transact(number: int, tasks: Tasks, rows: int) -> None:
    with Session(engine) as session, session.begin():
        for _ in range(rows):
            session.execute(text(INSERT), order(number))
        for task, due in tasks:
            client.enqueue_in_transaction(session, options(due), task, USER)
    committed(number)
