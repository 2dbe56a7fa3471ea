"""Our listener, with a hook that counts how often it looks for due tasks, and finds none.

    python -m benchmarks.kit.counting_listener URL TASKS

The counts go into a file `claims-PID` in the current folder, twice a second.
"""

import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path

from expirebridge.hooks import Claimed, Event
from expirebridge.listener.listener import run
from expirebridge.settings import Settings

claims: Counter[str] = Counter(empty=0, full=0)


def count(event: Event) -> None:
    """Count what a look for due tasks brought."""
    if isinstance(event, Claimed):
        claims["full" if event.count else "empty"] += 1


def tell() -> None:
    """Write the counts, for ever."""
    beside, file = Path(f"part-{os.getpid()}"), Path(f"claims-{os.getpid()}")
    stopped = threading.Event()
    while not stopped.wait(0.5):
        beside.write_text(json.dumps(claims))
        beside.replace(file)


if __name__ == "__main__":
    threading.Thread(target=tell, daemon=True).start()
    run(Settings.read(url=sys.argv[1], tasks=sys.argv[2]), hooks=[count])
