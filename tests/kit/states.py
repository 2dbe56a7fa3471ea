"""Task `a`, brought into any state, and what happens to it there."""

import redis

from expirebridge import Outcome
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import producing, reconciling
from expirebridge.task.calls.call import When
from expirebridge.task.calls.claiming import Settlement
from expirebridge.task.calls.reconciling import EventKind
from tests.kit.steps import claim, new, settle

CALL = b"mail.send?[1]"
KEY = b"a:?mail.send?[1]"
HOUR = 3_600_000
"""In ms."""


def bring(store: Store, client: redis.Redis, state: str) -> None:
    """Bring task `a`, watched, with a tag and one failed attempt behind it, into a state."""
    if state == "absent":
        return
    store.run(producing.make([new("a", fields={"tags": "t", "retry": "[60]", "ttl": HOUR})]))
    claim(store, "first")
    settle(store, Settlement("a", "first", "retry", 3600, "no answer"))
    match state:
        case "paused":
            store.run(producing.pause(["a"]))
        case "cancelled":
            store.run(producing.cancel(["a"], keep=3600))
        case "running" | "succeeded" | "failed":
            store.run(producing.reschedule("a", When(0, relative=True)))
            claim(store, "t")
            if state != "running":
                settle(store, Settlement("a", "t", state, text="x"))


def watch(store: Store, ttl: int) -> Outcome:
    """Make a watched task `a`, or put it off, by so many ms."""
    watched = new("a", ttl, if_exists="extend", fields={"ttl": ttl})
    return store.run(producing.make([watched]))[0].outcome


def hear(store: Store, heard: EventKind) -> None:
    """Let a listener hear of the timer of task `a`."""
    store.run(reconciling.adopt([reconciling.KeyEvent(KEY, "a", CALL, heard)], Settings()))
