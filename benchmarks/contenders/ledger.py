# /// script
# requires-python = ">=3.11"
#
# [tool.lab]
# title = "expirebridge with a ledger"
# kind = "ours"
# environment = "lab"
# databases = ["postgresql", "sqlite", "mariadb"]
# prepare = ["python -m expirebridge ledger create"]
# variables = { EXPIREBRIDGE_LEDGER = "{database}" }
# worker = [
#   "python -m expirebridge listen --url {url} --tasks {here}/expirebridge_tasks",
# ]
# driver = "python -m benchmarks.kit.ordering {module}"
# handlers = ["async"]
# concurrency = "100 by default: coroutines"
# settings = "defaults, with the extra `fast` (hiredis); the producer has a Session of SQLAlchemy"
# redelivery = 10 # the lease
# only = ["inserts", "commit_lag", "commit_crash", "ledger_pass", "ledger_ahead", "ledger_idle"]
# because = "it is compared where tasks belong to a transaction"
# documentation = ["docs/reference/ledger.md"]
# ///
"""Ours, with tasks in the caller's transaction, as docs/reference/ledger.md says."""

import os
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from benchmarks.kit.orders import DATABASE, INSERT, Tasks, committed, order
from benchmarks.kit.server import URL, USER
from expirebridge.ledger import Ledger

engine = create_engine(DATABASE)
ledger = Ledger(DATABASE, redis=URL if os.environ.get("LAB_NOTIFY", "1") == "1" else None)


def transact(number: int, tasks: Tasks, rows: int) -> None:
    with Session(engine) as session, session.begin():
        for _ in range(rows):
            session.execute(text(INSERT), order(number))
        if len(tasks) == 1:
            [(task, due)] = tasks
            ledger.make_task(session, "mail.send", [task, USER], **_when(due))
        elif tasks:
            ledger.make_tasks(
                session,
                [{"func": "mail.send", "args": [task, USER]} | _when(due) for task, due in tasks],
            )
    committed(number)


def _when(due: float | None) -> dict[str, Any]:
    return {"delay": 0} if due is None else {"at": datetime.fromtimestamp(due, UTC)}
