"""What partitions cost on one server: CPU for each task, and at rest.

At one rate, for each number of partitions: one listener, and so many no-op tasks a second, made one
by one by another process. Printed is the CPU time of server and listener for each task, less what
they use at rest, measured before. Then so many listeners at rest, for some numbers of partitions:
the part of a core that server and listeners use, and the commands that the server runs.

    python -m benchmarks.partitions [--rate 500] [--seconds 20] [--listeners 8]
"""

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import redis

from benchmarks.adoption import cpu
from benchmarks.growing import HANDLER, listener
from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer

PRODUCE = """
import sys, time
from expirebridge import Bridge
url, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
with Bridge(url) as bridge:
    began, made = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        bridge.make_task("clock.tick", [], 1.0)
        made += 1
        time.sleep(max(began + made / rate - time.monotonic(), 0))
print(made)
"""


def commands(client: redis.Redis) -> int:
    return int(client.info("stats")["total_commands_processed"])


def run(partitions: int, listeners: int, rate: float, seconds: float) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        client = stack.enter_context(redis.Redis.from_url(server.url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tasks"
        folder.mkdir()
        (folder / "clock.py").write_text(HANDLER)
        with Bridge(server.url) as bridge:
            bridge.create_partitions(partitions)
        processes = [listener(server.url, folder, stack) for _ in range(listeners)]
        while True:
            with Bridge(server.url) as bridge:
                if bridge.count().listeners == listeners:
                    break
            time.sleep(0.1)
        time.sleep(5)
        pids = [server.pid or 0, *(process.pid for process in processes)]

        def used(seconds: float, *, makes: bool) -> tuple[float, float, int, int]:
            before, ran = [cpu(pid) for pid in pids], commands(client)
            made = 0
            if makes:
                words = [sys.executable, "-c", PRODUCE, server.url, str(rate), str(seconds)]
                made = int(subprocess.run(words, capture_output=True, check=True).stdout)
                time.sleep(2)
            else:
                time.sleep(seconds)
            spent = [after - then for after, then in zip(map(cpu, pids), before, strict=True)]
            return spent[0], sum(spent[1:]), commands(client) - ran, made

        at_rest = used(seconds, makes=False)
        line = (
            f"P {partitions:>3}  listeners {listeners}   at rest: server "
            f"{at_rest[0] / seconds * 100:.2f} % of a core, listeners "
            f"{at_rest[1] / seconds * 100:.2f} %, {at_rest[2] / seconds:,.0f} commands/s"
        )
        if rate:
            busy = used(seconds, makes=True)
            rest = [each / seconds * (seconds + 2) for each in at_rest[:2]]
            per = [(busy[i] - rest[i]) / busy[3] * 1e6 for i in (0, 1)]
            line += (
                f"   {busy[3] / seconds:,.0f} tasks/s: server {per[0]:.0f} µs, listener "
                f"{per[1]:.0f} µs a task"
            )
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--listeners", type=int, default=8)
    given = parser.parse_args()
    for partitions in (1, 4, 16, 64):
        run(partitions, 1, given.rate, given.seconds)
    for partitions in (1, 16):
        run(partitions, given.listeners, 0, given.seconds)


if __name__ == "__main__":
    main()
