# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "celery[redis]==5.7.0", "hiredis==3.5.0", "sqlalchemy==2.1.9", "psycopg[binary]==3.3.9",
# ]
#
# [tool.lab]
# title = "Celery, sent after the commit"
# kind = "peer"
# databases = ["postgresql"]
# worker = [
#   "celery --app {module} worker --pool threads --concurrency {concurrency} --loglevel WARNING",
# ]
# driver = "python -m benchmarks.kit.ordering {module}"
# handlers = ["plain"]
# concurrency = "--concurrency 100, with the pool of threads"
# settings = """\
#   Redis as the broker, no result backend; tasks are sent by SQLAlchemy's `after_commit`, as \
#   `delay_on_commit` does in Django"""
# only = ["inserts", "commit_lag", "commit_crash"]
# because = "its tasks are made after a commit"
# documentation = [
#   "https://docs.celeryq.dev/en/stable/django/first-steps-with-django.html#trigger-tasks-at-the-end-of-the-database-transaction",
#   "https://docs.sqlalchemy.org/en/20/orm/events.html#sqlalchemy.orm.SessionEvents.after_commit",
# ]
# ///
"""Celery, whose tasks are sent to the broker when the transaction is committed."""

from datetime import UTC, datetime

from celery import Celery
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from benchmarks.kit import journal
from benchmarks.kit.orders import DATABASE, INSERT, Tasks, committed, order
from benchmarks.kit.server import URL, USER

app = Celery("lab", broker=URL)
app.conf.broker_transport_options = {"visibility_timeout": 7 * 86400}
engine = create_engine(DATABASE)


@app.task
def send(number: int, user: str) -> None:
    journal.handle_plain(number)


def transact(number: int, tasks: Tasks, rows: int) -> None:
    with Session(engine) as session:

        def after_commit(_: Session) -> None:
            committed(number)
            for task, due in tasks:
                eta = None if due is None else datetime.fromtimestamp(due, UTC)
                send.apply_async((task, USER), eta=eta)

        event.listen(session, "after_commit", after_commit)
        for _ in range(rows):
            session.execute(text(INSERT), order(number))
        session.commit()
