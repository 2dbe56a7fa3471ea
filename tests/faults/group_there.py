"""A producer that makes a group of so many members, or what is missing of it.

With a second number it is killed at that call of its hook: there is one before a task is sent, and
one when it is made; the follow-up is the first task.
"""

import os
import signal
import sys

from expirebridge import Bridge, Then
from expirebridge.events import Event

count, *last = map(int, sys.argv[1:])
calls = 0


def hook(event: Event) -> None:
    global calls  # noqa: PLW0603 - one producer
    calls += 1
    if calls in last:
        os.kill(os.getpid(), signal.SIGKILL)


with Bridge(hooks=[hook]) as bridge:
    bridge.make_group(
        "g",
        [{"func": "recorded.work", "args": [0, 0], "delay": 0, "retry": []}] * count,
        then=Then("recorded.work", [0, 0], retry=[]),
    )
