"""Makes a task of each kind, as every version can; prints how each call ended."""

import json
import sys
from datetime import UTC, datetime, timedelta

from expirebridge import Bridge, Spread, Task

PAST = datetime.now(UTC) - timedelta(minutes=1)
LONG = "é" * 1000


def make_due(bridge: Bridge) -> list[Task]:
    """Tasks that a listener runs at once."""
    make = bridge.make_task
    first = make("acts.take", ["old"], "1h", id="replaced")
    return [
        first,
        make("acts.take", ["new"], 0, id="replaced", if_exists="replace"),
        make("acts.take", [1, "é", None], 0, id="plain"),
        make("acts.take", [1], kwargs={"b": 2}, delay=0, id="keywords"),
        make("acts.take", [LONG], 0, id="long"),
        make("acts.take", at=PAST, id="past"),
        make("acts.take", [], "20ms", id="soon"),
        make("acts.take", [], 0, id="tagged", tags=["a", "b"]),
        make("acts.fail", [1], 0, id="retried", retry=[0.01, 3600]),
        make("acts.fail", [1], 0, id="retrying", retry=["1h"]),
        make("acts.fail", [9], 0, id="failed", retry=[], tags=["a"]),
        make("acts.sleep", [60], 0, id="timed-out", timeout="50ms", retry=[]),
        make("acts.take", at=PAST, id="skipped", late_after="1s", misfire="skip"),
        make("acts.take", at=PAST, id="spread", late_after="1s", misfire=Spread(over="20ms")),
        bridge.watch("watched", "acts.take", ["silent"], ttl="50ms"),
        make("acts.sleep", [1, 2], 0, id="wrong-arguments"),
        make("acts.unheard", [], 0, id="unknown"),
        *bridge.make_tasks([{"func": "acts.take", "args": [n], "delay": 0} for n in range(70)]),
    ]


def make_waiting(bridge: Bridge) -> list[Task]:
    """Tasks that wait."""
    make = bridge.make_task
    names = ("moved", "put-off", "paused", "resumed", "cancelled", "now", "tag-1", "tag-2")
    waiting = [
        make("acts.take", [name], "1h", id=name, tags=["t"] if name.startswith("tag") else [])
        for name in names
    ]
    waiting.append(bridge.watch("beaten", "acts.take", ["beaten"], ttl="1h"))
    waiting.append(
        make("acts.take", ["debounced"], "1h", id="debounced", if_exists="extend", max_wait="2h")
    )
    bridge.pause("resumed")
    return waiting


with Bridge() as bridge:
    made = make_due(bridge) if sys.argv[1] == "due" else make_waiting(bridge)
print(json.dumps([f"{task.id if len(task.id) < 20 else 'drawn'}: {task.outcome}" for task in made]))
