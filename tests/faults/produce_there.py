"""A producer of tasks of one partition, on the side of a minority, until its stdin ends.

It takes the history's folder and the ids' file; it prints when it was refused first and last.
"""

import select
import sys
from pathlib import Path

from expirebridge import Bridge
from expirebridge.errors import ServerError
from expirebridge.task.task import to_ms
from tests.kit.history import Made, Writer, now

PAUSE = 0.01
"""Seconds between two tasks."""

history = Writer(Path(sys.argv[1]))
ids = iter(Path(sys.argv[2]).read_text().split())
with Bridge() as bridge:
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        id = next(ids)
        try:
            task = bridge.make_task("recorded.work", [0, 0], 0.2, id=id, retry=[])
        except ServerError as error:
            print(f"refused {now()} {type(error).__name__}", flush=True)  # noqa: T201
        else:
            history.write(Made(id=id, due=to_ms(task.due), attempts=1))
            print(f"made {now()} {id}", flush=True)  # noqa: T201
