"""The programs of docs/how-to/signals.md: with a listener, and requests to a web server."""

import hmac
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from expirebridge import Bridge, Change
from expirebridge.embedded.server import free_port
from tests.kit.invoked import invoke
from tests.kit.patience import PATIENCE, until
from tests.kit.process_logs import noted
from tests.kit.processes import ROOT, listener

PAGE = (ROOT / "docs" / "how-to" / "signals.md").read_text(encoding="utf-8")
SECRET = "of the provider"

pytestmark = pytest.mark.rest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs of the page, each in its file; returns the folder of the handlers."""
    (tmp_path / "tasks").mkdir()
    blocks = re.findall(r"```python\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == PAGE.count("```python") == 6
    for name, text in blocks:
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / "tasks"


@contextmanager
def serving(url: str, folder: Path, server: str, app: str) -> Iterator[httpx.Client]:
    """The web application in a process, and a client of it; it serves when the block begins."""
    address = f"127.0.0.1:{free_port()}"
    options = {
        "gunicorn": ["--bind", address],
        "uvicorn": ["--port", address.partition(":")[2]],
    }[server]
    log = noted(folder.parent / "web.log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", server, app, *options], cwd=folder.parent,
            env=os.environ | {"EXPIREBRIDGE_URL": url, "WEBHOOK_SECRET": SECRET},
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        until(lambda: address in log.read_text() or process.poll(), "the application")
        with httpx.Client(base_url=f"http://{address}", timeout=PATIENCE) as client:
            yield client
    finally:
        process.terminate()
        process.wait(PATIENCE)


def result_of(bridge: Bridge, id: str) -> object:
    """What its handler returned, waited for."""
    until(lambda: (task := bridge.get(id)) and task.state.finished, f"the end of {id}")
    task = bridge.get(id)
    assert task is not None
    return task.result


def test_an_approval_or_a_cancel(url: str, bridge: Bridge, folder: Path) -> None:
    with listener(url, folder), serving(url, folder, "gunicorn", "approvals:app") as client:

        def approve(number: int, person: str) -> tuple[int, str]:
            answer = client.post(f"/purchases/{number}/approval", json={"person": person})
            return answer.status_code, answer.json()["answer"]

        for number in 7, 8:
            assert client.post(f"/purchases/{number}").status_code == 202
        assert approve(7, "ann") == (200, Change.SIGNALLED)
        assert result_of(bridge, "purchase-7") == "ordered 7, approved by ann"
        assert approve(7, "ann") == (200, Change.SIGNALLED)
        assert approve(7, "bob") == (409, Change.SIGNALLED_BEFORE)
        bridge.reschedule("purchase-8", "20ms")
        assert result_of(bridge, "purchase-8") == "cancelled 8"
        assert approve(8, "ann") == (409, Change.FINISHED)
        assert approve(9, "ann") == (404, Change.NOT_FOUND)


def test_the_commands_print_what_the_page_shows(url: str, bridge: Bridge) -> None:
    bridge.make_task("purchases.cancel", [7], "48h", id="purchase-7", on_signal="purchases.order")
    [block] = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(r"^\$ expirebridge (.*\n)((?:(?!\$ ).*\n)+)", block, re.MULTILINE)
    assert len(commands) == 2
    for command, shown in commands:
        pattern = ".*".join(map(re.escape, shown.split("...")))
        printed = invoke(*shlex.split(command), url=url)
        assert re.fullmatch(pattern, printed), printed


def test_a_payment_or_the_stock(url: str, bridge: Bridge, folder: Path) -> None:
    with listener(url, folder), serving(url, folder, "gunicorn", "checkout:app") as client:

        def pay(payment: str, order: int, secret: str = SECRET) -> tuple[int, str | None]:
            event = {"id": str(uuid4()), "order": order, "payment": payment, "amount": 5}
            body = json.dumps(event).encode()
            signature = hmac.new(secret.encode(), body, "sha256").hexdigest()
            headers = {"Content-Type": "application/json", "Signature": signature}
            answer = client.post("/webhooks/payments", content=body, headers=headers)
            return answer.status_code, answer.json()["answer"] if answer.is_success else None

        for order in 7, 8:
            assert client.post(f"/orders/{order}").status_code == 202
        assert pay("p1", 7, secret="guessed") == (401, None)
        assert pay("p1", 7) == (200, Change.SIGNALLED)
        assert result_of(bridge, "pay-7") == "shipped 7, paid 5 by p1"
        assert pay("p1", 7) == (200, Change.SIGNALLED)
        assert bridge.get("refund-p1") is None
        assert pay("p2", 7) == (200, Change.SIGNALLED_BEFORE)
        assert result_of(bridge, "refund-p2") == "refunded p2"
        bridge.reschedule("pay-8", "20ms")
        assert result_of(bridge, "pay-8") == "released 8"
        assert pay("p3", 8) == pay("p3", 8) == (200, Change.FINISHED)
        assert result_of(bridge, "refund-p3") == "refunded p3"
        assert pay("p4", 9) == (503, None)
        assert bridge.get("refund-p4") is None


def test_an_agent_and_a_person(url: str, bridge: Bridge, folder: Path) -> None:
    with listener(url, folder), serving(url, folder, "uvicorn", "agent:app") as client:

        def answer(run: int) -> tuple[int, str]:
            got = client.post(f"/runs/{run}/answer", json={"person": "ann", "text": "send it"})
            return got.status_code, got.json()

        for run in 7, 8:
            assert client.post(f"/runs/{run}?topic=rent").status_code == 202
        until(lambda: all(bridge.get(f"run-{run}@answer") for run in (7, 8)), "the questions")
        assert answer(7) == (200, Change.SIGNALLED)
        assert result_of(bridge, "run-7@answer") == "rent: send it"
        bridge.reschedule("run-8@answer", "20ms")
        assert result_of(bridge, "run-8@answer") == "rent: nobody answered"
        assert answer(8) == (409, Change.FINISHED)
        assert answer(9) == (404, Change.NOT_FOUND)
