"""Draws the pictures of the pages for operators, a million tasks pending, and times the dashboard.

    python -m tests.web.screenshots [tasks]

The tasks, the listener and the failure are real. The past of the charts is made up: nobody waits a
day for a picture. Where pngquant is installed, the files are a third as large.
"""

import math
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from playwright.sync_api import Browser, sync_playwright

from expirebridge import Bridge, web
from expirebridge.embedded.server import EmbeddedServer
from tests.kit.processes import listener, until_subscribed
from tests.web.serving import CHROMIUM, OPTIONS, served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PICTURES = {"overview": "/", "tasks": "/tasks", "failed": "/task?id=charge-1042"}
"""Those that docs/how-to/dashboard.md shows."""
WIDTH, HEIGHT = 1600, 800
LOADS = 7

HANDLERS = {
    "mail": "def send(user, subject):\n    return 'sent'\n",
    "orders": "def rate(order):\n    return None\n",
    "payments": (
        "from expirebridge import handler\n\n\n"
        "@handler(retry=[])\n"
        "def charge(order, cents):\n"
        "    answer = {'status': 502, 'body': 'upstream is away'}\n"
        "    raise ConnectionError(f\"order {order}: {answer['status']} {answer['body']}\")\n"
    ),
}

PAGES = {
    "overview": "/",
    "tasks": "/tasks",
    "tasks, the last page": "/tasks?cursor={last}",
    "tasks of a function": "/tasks?func=orders.rate",
    "tasks of a function that has none": "/tasks?func=no.such",
    "tasks whose ids begin so": "/tasks?id=charge",
    "tasks whose ids begin so, of a state (100,000 looked at)": "/tasks?id=charge&state=pending",
    "tasks of a tag": "/tasks?tag=customer-7",
    "tasks of a minute": "/tasks?after={minute}&before={next}",
    "a task": "/task?id=charge-1042",
    "failed tasks": "/tasks?state=failed",
    "a preview of 10,000": "/bulk?state=pending&action=put_off&by=1h",
}


def tasks(number: int) -> Iterator[dict[str, Any]]:
    chance = random.Random(7)  # noqa: S311 - the same picture each time
    for n in range(number):
        func, args = ("mail.send", [n, "hi"]) if n % 3 else ("orders.rate", [n])
        # Some within the hour, in waves; most within three days.
        soon = n % 250 == 0
        delay = 200 + abs(chance.gauss(1500, 900)) if soon else chance.uniform(3600, 259_200)
        task: dict[str, Any] = {"func": func, "args": args, "delay": delay}
        if n % 5000 == 0:
            task["tags"] = ["customer-7", "trial"]
        yield task


def make_up_a_past(client: redis.Redis) -> None:
    chance = random.Random(7)  # noqa: S311
    now = int(client.time()[0]) // 60
    for minute in range(now - 1439, now + 1):
        busy = 220 + 160 * math.sin(minute / 229) + chance.uniform(0, 70)
        counts = {"s1": 0.55, "s2": 0.36, "s3": 0.075, "s4": 0.008}
        fields: dict[Any, Any] = {field: int(busy * share) + 1 for field, share in counts.items()}
        if chance.random() < 0.25:
            fields["r3"] = chance.randint(2, 25)
        if chance.random() < 0.05:
            fields |= {"f3": chance.randint(2, 12), "s8": chance.randint(5, 30)}
        client.hset(f"expirebridge:minute:{minute}", mapping=fields)


def show(browser: Browser, address: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    for theme in ("light", "dark"):
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            color_scheme="dark" if theme == "dark" else "light",
        )
        page = context.new_page()
        for picture, path in PICTURES.items():
            page.goto(address + path)
            page.screenshot(path=IMAGES / f"{picture}-{theme}-wide.png")
        context.close()
    if shrink := shutil.which("pngquant"):
        subprocess.run([shrink, "--force", "--ext=.png", *IMAGES.glob("*.png")], check=True)


def measure(browser: Browser, address: str, **values: str) -> None:
    page = browser.new_page()
    print("| page | answered, ms | loaded, ms |\n|---|---|---|")
    for name, path in PAGES.items():
        took = []
        for _ in range(LOADS):
            page.goto(address + path.format(**values))
            took.append(
                page.evaluate(
                    "(e => [e.responseEnd - e.requestStart, e.loadEventEnd])"
                    "(performance.getEntriesByType('navigation')[0])"
                )
            )
        answered, loaded = (statistics.median(column) for column in zip(*took, strict=True))
        print(f"| {name} | {answered:.0f} | {loaded:.0f} |", flush=True)


def main(number: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer() as server,
        Bridge(server.url) as bridge,
        redis.Redis.from_url(server.url) as client,
    ):
        for module, source in HANDLERS.items():
            Path(folder, f"{module}.py").write_text(source)
        began = time.monotonic()
        bridge.make_tasks(tasks(number))
        print(f"{number:,} tasks made in {time.monotonic() - began:.0f} s", flush=True)
        make_up_a_past(client)
        for n in range(40):
            bridge.make_task("mail.send", [n, "hi"], 0)
        bridge.make_task("payments.charge", [1042, 4990], 0, id="charge-1042", tags=["customer-7"])
        bridge.pause(bridge.list(limit=1).tasks[0].id)
        with listener(server.url, Path(folder)), sync_playwright() as playwright:
            until_subscribed(server.url)
            while bridge.count().failed == 0:
                pass
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
            app = web.app(server.url, actions=True, loopback_only=True)
            with served(app) as address:
                minute = int(client.time()[0]) // 60 + 30
                measure(
                    browser, address, last=str(bridge.count().pending - 50),
                    minute=f"{time.strftime('%Y-%m-%dT%H:%M', time.gmtime(minute * 60))}",
                    next=f"{time.strftime('%Y-%m-%dT%H:%M', time.gmtime(minute * 60 + 60))}",
                )  # fmt: skip
                show(browser, address)
            browser.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
