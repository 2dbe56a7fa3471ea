"""How many listeners the next minutes need, as the command and the port of the metrics say it."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, InvalidTask
from expirebridge.embedded.server import free_port
from expirebridge.lateness.calls import Took, note_durations, read_durations
from expirebridge.lateness.roles import LatenessRoles
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.invoked import invoke, invoke_json
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND, Reports, listener, log_of, until_logged
from tests.kit.witness import Witness, listening

DURATIONS = "expirebridge:durations"
DEPLOY = Path(__file__).parents[2] / "deploy"


def make_at_once(bridge: Bridge, count: int, seconds: float) -> None:
    """Tasks that are due in one millisecond, and so in one span."""
    due = datetime.now(UTC) + timedelta(seconds=seconds)
    bridge.make_tasks([{"func": "mail.send", "at": due}] * count)


@pytest.mark.parametrize("places", ["1000001", "9" * 400])
def test_the_command_refuses_more_places_than_there_are(url: str, places: str) -> None:
    with pytest.raises(InvalidTask, match="1 to 1,000,000"):
        invoke("scale", "--concurrency", places, url=url)


async def test_a_listener_records_how_long_its_handlers_take(
    url: str, bridge: Bridge, store: Store
) -> None:
    witness = Witness()
    async with listening(Settings(url=url), witness, note=lambda: None) as running:
        bridge.make_tasks([{"func": "test.note", "delay": 0}] * 3)
        ended = await witness.until_ended(3)
        [consumer] = running._servers.consumers
        [recorder] = [
            each.duration_recorder
            for each in consumer.capabilities
            if isinstance(each, LatenessRoles)
        ]
        await recorder.run_once()
        await recorder.run_once()  # nothing has ended since
    known = store.run(read_durations())
    assert known.keys() == {"test.note"}
    assert known["test.note"].attempts == 3
    took = sum(each.duration for each in ended)
    assert known["test.note"].seconds == pytest.approx(took, abs=1e-3)


def test_the_latest_thousand_attempts_count_most(store: Store, client: redis.Redis) -> None:
    store.run(note_durations({"mail.send": Took(900, 90), "orders.rate": Took(1, 4)}))
    store.run(note_durations({"mail.send": Took(100, 10)}))
    assert store.run(read_durations())["mail.send"] == Took(1000, 100)
    store.run(note_durations({"mail.send": Took(1000, 900)}))
    assert store.run(read_durations()) == {"mail.send": Took(1000, 500), "orders.rate": Took(1, 4)}
    client.hset(DURATIONS, mapping={"bad": "x", "worse": "nan 1", "none": "0 0", "far": "1 inf"})
    assert store.run(read_durations()).keys() == {"mail.send", "orders.rate"}
    store.run(note_durations({"worse": Took(1, 2), "bad": Took(2, 2)}))
    assert store.run(read_durations())["bad"] == Took(2, 2)
    assert store.run(read_durations())["worse"] == Took(1, 2)
    client.set(DURATIONS, "another type")
    store.run(note_durations({"mail.send": Took(1, 1)}))
    assert store.run(read_durations()) == {}


def test_the_command_says_how_many_listeners_and_why(
    url: str, bridge: Bridge, store: Store
) -> None:
    store.run(note_durations({"mail.send": Took(100, 200)}))
    make_at_once(bridge, 500, 95)
    bridge.make_task("orders.rate", [], 0)
    shown = invoke_json("scale", "--concurrency", "20", url=url)
    # 500 tasks of two seconds in ten: 100 places, of 16 that a listener is to use.
    assert (shown["listeners"], shown["peak_tasks"], shown["peak_slots"]) == (7, 500, 100)
    assert (shown["overdue"], shown["running"], shown["short_notice"]) == (1, 0, 0)
    assert shown["unmeasured"] == ["orders.rate"]
    text = invoke("scale", "--within", "30s", "--concurrency", "20", url=url)
    assert text.startswith("3 listeners, each of 20 tasks at once\n")
    assert "500 tasks in 30s, which take 33.3 places" in text
    assert text.endswith("not known how long they take: orders.rate\n")
    assert invoke_json("scale", "--ahead", "1m", url=url)["peak_tasks"] == 1


def test_exactly_240_spans_are_looked_at(url: str) -> None:
    for words in (("--ahead", "336s", "--within", "1.4s"), ("--ahead", "1s", "--within", "1s")):
        assert invoke_json("scale", *words, url=url)["listeners"] == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--ahead", "0s"),
        ("--within", "0s"),
        ("--within", "1s"),
        ("--ahead", "1m", "--within", "1h"),
    ],
)
def test_the_command_refuses_times_that_cannot_be(url: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidTask, match="must be 1 to 240 times as long"):
        invoke("scale", *words, url=url)


def ask(where: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(where, timeout=PATIENCE) as answer:  # noqa: S310 - http, from the log
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_listener_answers_autoscalers_on_the_port_of_its_metrics(
    url: str, bridge: Bridge, store: Store, folder: Path, reports: Reports
) -> None:
    store.run(note_durations({"mail.send": Took(100, 200)}))
    make_at_once(bridge, 500, 95)
    with listener(url, folder, "--metrics-port", "0", "--concurrency", "20"):
        until_logged("metrics on http://", folder)
        [metrics] = re.findall(r"metrics on (\S+)", log_of(folder))
        scale = metrics.replace("/metrics", "/scale")
        status, found = ask(scale)
        assert (status, found["listeners"], found["concurrency"]) == (200, 7, 20)
        assert found.keys() >= invoke_json("scale", url=url).keys()
        status, found = ask(f"{scale}?ahead=2m&within=30&concurrency=40")
        assert (status, found["listeners"], found["ahead"], found["within"]) == (200, 2, 120, 30)
        for query, message in (
            ("ahead=soon", "ahead='soon'"),
            ("ahead=", "ahead=''"),
            ("within=0", "must be 1 to 240 times"),
            ("concurrency=0", "concurrency: it must be a whole number, 1 to 1,000,000"),
            ("concurrency=1000001", "concurrency: it must be a whole number, 1 to 1,000,000"),
            ("concurrency=" + "9" * 5000, "concurrency: it must be a whole number"),
            ("ahead=5s&within=1m", "must be 1 to 240 times"),
            ("ahaed=5m", "ahaed: ask for ahead, within, concurrency"),
        ):
            status, refused = ask(f"{scale}?{query}")
            assert status == 400
            assert message in refused["error"]
        keda = (DEPLOY / "keda.yaml").read_text()
        [query] = re.findall(r"url: http://[^/]+/scale(\S+)", keda)
        [field] = re.findall(r"valueLocation: (\w+)", keda)
        status, found = ask(scale + query)
        assert (status, found[field]) == (200, 7)
        bridge.make_task("acts.note", [], 0)
        assert reports.next().word == "ran"


@pytest.mark.rest
def test_the_script_for_systemd_starts_so_many_and_stops_the_others(
    url: str, bridge: Bridge, store: Store, tmp_path: Path
) -> None:
    store.run(note_durations({"mail.send": Took(100, 200)}))
    make_at_once(bridge, 1000, 45)
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "log"}\n')
    (tmp_path / "systemctl").chmod(0o755)
    path = f"{tmp_path}:{Path(COMMAND[0]).parent}:{os.environ['PATH']}"

    def decide(server: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PATH": path, "EXPIREBRIDGE_URL": server}
        command = ["sh", str(DEPLOY / "expirebridge-scale")]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    away = decide(f"redis://127.0.0.1:{free_port()}/1")
    assert away.returncode == 1
    assert not (tmp_path / "log").exists()
    result = decide(url)
    assert (result.returncode, result.stderr) == (0, "")
    # 1,000 tasks of two seconds in ten: 200 places, of 80 that a listener is to use.
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines[:3] == [f"start expirebridge@{number}" for number in (1, 2, 3)]
    assert lines[3:] == [f"stop --no-block expirebridge@{number}" for number in range(4, 9)]
