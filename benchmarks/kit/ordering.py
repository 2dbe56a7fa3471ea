"""The producer's process of contenders that make tasks in transactions, or right after them.

    python -m benchmarks.kit.ordering benchmarks.contenders.NAME

Each line on stdin is one order: the fields of `Orders` in lab/stage.py. The answer, a line on
stdout, is {"seconds": how long it took, "cpu": of this process's time, "commits": [[number, when],
...]}, or {"error": ...}. An order of kit/driver.py makes one task in a transaction of its own. The
contender's module is as kit/orders.py says; its `open()` comes first.
"""

import importlib
import json
import os
import sys
import time
import traceback
from types import ModuleType
from typing import Any

from benchmarks.kit import orders


def obey(module: ModuleType, order: dict[str, Any]) -> dict[str, Any]:
    """Make the transactions, and tell what they took."""
    orders.commits.clear()
    if "due_ms" in order:  # it only asks whether tasks run
        module.transact(order["first"], [(order["first"], None)], 1)
        return {"seconds": 0.0}
    numbers = range(order["first"], order["first"] + order["count"])
    if order["dies"]:
        orders.die_after(numbers[-1])
    began, worked = time.time(), time.process_time()
    for place, number in enumerate(numbers):
        time.sleep(max(began + place * order["seconds"] / len(numbers) - time.time(), 0))
        module.transact(number, _tasks(number, order["tasks"], order["delay"]), order["rows"])
    took = {"seconds": time.time() - began, "cpu": time.process_time() - worked}
    return took | {"commits": orders.commits}


def _tasks(number: int, count: int, delay: float) -> orders.Tasks:
    """One task has the number of its order; of several, each has one of its own."""
    due = time.time() + delay if delay else None
    return [(number if count == 1 else number * count + n, due) for n in range(count)]


def main(name: str) -> None:
    """Obey orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    module = importlib.import_module(name)
    if hasattr(module, "open"):
        module.open()
    print(json.dumps({"bulk": False}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = obey(module, json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
