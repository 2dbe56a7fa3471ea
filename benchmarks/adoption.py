"""The cost of two event subscribers while very many tasks of our own are made.

Each task that a script makes emits an `expire` event, as another client's SET does, and both
subscribers receive it. This makes tasks as fast as this machine can, and prints the CPU time of the
server and of each listener for each 10,000 of them: while listeners hear events, and while they do
not.

    python benchmarks/adoption.py [--tasks 100000]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import redis

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer

TICK = os.sysconf("SC_CLK_TCK")
QUIET = 1.5
"""Seconds without a change of the server's count of scripts: the subscribers are done."""


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def until_idle(client: redis.Redis) -> None:
    """Wait until nobody asks for more than a listener at rest does."""
    while True:
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        time.sleep(QUIET)
        if client.info("commandstats")["cmdstat_evalsha"]["calls"] - before < 40:
            return


def measure(events: str, tasks: int) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer(options={"notify-keyspace-events": events}))
        client = stack.enter_context(redis.Redis.from_url(server.url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with (folder / "log").open("wb") as log:
            listeners = [
                subprocess.Popen(
                    [sys.executable, "-m", "expirebridge", "listen", "--url", server.url,
                     "--tasks", folder],
                    stdout=log, stderr=log,
                )
                for _ in range(2)
            ]  # fmt: skip
        for listener in listeners:
            stack.callback(listener.wait)
            stack.callback(listener.terminate)
        while client.zcard("expirebridge:listeners") < len(listeners):
            time.sleep(0.01)
        until_idle(client)
        pids = [server.pid or 0, *(listener.pid for listener in listeners)]
        before = [cpu(pid) for pid in pids]
        began = time.monotonic()
        with Bridge(server.url) as bridge:
            for _ in range(tasks // 10_000):
                bridge.make_tasks(
                    [{"func": "mail.send", "args": [n], "delay": 3600} for n in range(10_000)]
                )
        made = time.monotonic() - began
        until_idle(client)
        took = time.monotonic() - began - QUIET
        used = [after - then for after, then in zip(map(cpu, pids), before, strict=True)]
        per = [f"{seconds * 10_000 / tasks:.2f}" for seconds in used]
        gaps = (folder / "log").read_text().count("gap: ")
        print(
            f"{'heard' if events else 'not heard':<10} {tasks / made:>8,.0f}/s   done after "
            f"{took:>5.1f} s   CPU s per 10,000: server {per[0]}, subscribers {per[1]} {per[2]}   "
            f"gaps {gaps}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    tasks = parser.parse_args().tasks
    for events in ("", "Exg"):
        measure(events, tasks)


if __name__ == "__main__":
    main()
