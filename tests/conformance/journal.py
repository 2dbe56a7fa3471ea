"""Where handlers write down what they were called with."""

import json
import os
import time
from pathlib import Path
from typing import Any

from expirebridge import current_task


def write_down(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Append a line on the task that is running to the file that JOURNAL names."""
    line = {"id": current_task().id, "args": args, "kwargs": kwargs, "at": time.time()}
    with Path(os.environ["JOURNAL"]).open("a") as journal:
        journal.write(json.dumps(line) + "\n")
