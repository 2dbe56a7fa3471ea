"""What follows a sale: an effect in the shop's own database, and the task is completed with it.

Here only if the listener has a ledger.
"""

import os
import time

from sqlalchemy import create_engine, text

from expirebridge import current_task
from expirebridge.ledger.engine import begin_immediate
from tests.kit.points import VARIABLE, reach

from . import _pointed
from ._recording import Planned, recorded

ENGINE = create_engine(os.environ.get("EXPIREBRIDGE_LEDGER", "sqlite://"), pool_pre_ping=True)
if ENGINE.dialect.name == "sqlite":
    begin_immediate(ENGINE)
if VARIABLE in os.environ:
    _pointed.install()


def deliver(seconds: float, raises: int) -> None:
    """Take so long, raise on the first `raises` attempts, and then have an effect."""
    with recorded() as task:
        reach("handler: begun")
        time.sleep(seconds)
        if task.attempt <= raises:
            raise Planned(f"attempt {task.attempt} of {task.id} was to raise")
        with ENGINE.begin() as connection:
            connection.execute(text("INSERT INTO effects VALUES (:id)"), {"id": task.id})
            reach("handler: effect written")
            current_task().complete_in(connection)
            reach("handler: completed, not committed")
        reach("handler: committed")


HANDLERS = [deliver]
