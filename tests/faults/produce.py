"""A producer in a process of its own, of whichever version Python finds: until it is asked to stop.

It takes the history's folder, and ends when its stdin does.
"""

import random
import select
import sys
from pathlib import Path

from expirebridge import Bridge
from expirebridge.task import to_ms
from tests.kit.history import Made, Writer

PAUSE = 0.005
"""Seconds between two tasks."""
RETRY = [0.2]

chance = random.Random(1)  # noqa: S311 - the same tasks each time
history = Writer(Path(sys.argv[1]))
with Bridge() as bridge:
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        args = [chance.uniform(0, 0.1), int(chance.random() < 0.05)]
        task = bridge.make_task("recorded.work", args, chance.uniform(0, 1), retry=RETRY)
        history.write(Made(id=task.id, due=to_ms(task.due), attempts=len(RETRY) + 1))
