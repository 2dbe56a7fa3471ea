"""Prints what a version sees of each of these tasks."""

import json
import sys
from typing import Any

from expirebridge import Bridge, Task


def seen(task: Task) -> dict[str, Any]:
    """What all versions show of a task, and can be compared."""
    return {
        "state": task.state,
        "func": task.func,
        "args": task.args,
        "kwargs": task.kwargs,
        "key": task.key.decode(),
        "due": task.due.isoformat(),
        "created": task.created.isoformat() if task.created else None,
        "attempt": task.attempt,
        "started": task.started.isoformat() if task.started else None,
        "ended": task.ended.isoformat() if task.ended else None,
        "result": task.result,
        "error": task.error,
        "lapses": task.lapses,
        "tags": list(task.tags),
        "history": [
            [entry.what, entry.attempt, entry.times, entry.error] for entry in task.history
        ],
    }


with Bridge() as bridge:
    tasks = {id: bridge.get(id) for id in sys.argv[1:]}
    counts = bridge.count()
shown = {id: seen(task) if task else None for id, task in tasks.items()}
print(json.dumps({"tasks": shown, "pending": counts.pending, "listeners": counts.listeners}))
