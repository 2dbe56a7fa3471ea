"""Where the example handlers note that they ran: a file, if EXPIREBRIDGE_JOURNAL names one.

A module or function whose name begins with an underscore is never a handler.
"""

import json
import os
import sys
import time
from pathlib import Path

from expirebridge import current_task


def note() -> None:
    """Note the time, and the task that is running. The first statement of each example."""
    started = time.time()
    task = current_task()
    line = json.dumps(
        {
            "started": started,
            "id": task.id,
            "func": task.func,
            "attempt": task.attempt,
            "due": task.due.timestamp(),
        }
    )
    if path := os.environ.get("EXPIREBRIDGE_JOURNAL"):
        with Path(path).open("a") as journal:
            journal.write(line + "\n")
    else:
        sys.stdout.write(line + "\n")
