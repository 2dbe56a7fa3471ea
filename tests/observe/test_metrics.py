"""The numbers for Prometheus, scraped from a listener over HTTP."""

import json
import re
import resource
import time
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import redis
import yaml
from prometheus_client import CollectorRegistry, Counter, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import create_engine

from expirebridge import Bridge, LateCause, State, Task
from expirebridge.hooks import Misfired, Started
from expirebridge.ledger.sql_tables import own_tables
from expirebridge.observe.metrics import Metrics
from expirebridge.observe.metrics_server import MOST_CONNECTIONS
from expirebridge.settings import Settings
from tests.kit.half_open import half_open, until_closed
from tests.kit.invoked import run
from tests.kit.patience import PATIENCE, until
from tests.kit.processes import Reports, listener, log_of, until_logged
from tests.kit.servers import AnyServer
from tests.kit.waiting import park

ROOT = Path(__file__).parents[2]
Numbers = dict[str, dict[tuple[str, ...], float]]


def scraped(url: str) -> list[Metric]:
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - http, from the log
        return list(text_string_to_metric_families(answer.read().decode()))


def metrics_of(folder: Path) -> str:
    """Where the listener serves its metrics."""
    until_logged("metrics on http://", folder)
    [where] = re.findall(r"metrics on (\S+)", log_of(folder))
    return str(where)


def numbers_of(metrics: list[Metric]) -> Numbers:
    """The value of each sample by its name and the values of its labels."""
    numbers: Numbers = {}
    for metric in metrics:
        for sample in metric.samples:
            numbers.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return numbers


def test_no_series_says_when_another_was_created() -> None:
    theirs = CollectorRegistry()
    Counter("their_orders", "Not ours.", registry=theirs)
    counting = Metrics(["mail.send"], registry=theirs)
    text = generate_latest(counting.registry).decode()
    assert 'expirebridge_attempts_total{function="mail.send",outcome="failed"} 0.0' in text
    assert 'expirebridge_lateness_seconds_bucket{function="mail.send"' not in text
    assert re.findall(r"^\w+_created\b", text, re.MULTILINE) == ["their_orders_created"]
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        Metrics(registry=theirs)


@pytest.mark.rest
def test_a_listener_goes_on_with_more_half_open_connections_than_it_may_have_files(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with listener(url, folder, "--metrics-port", "0") as process:
        where = metrics_of(folder)
        files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        limit = files + MOST_CONNECTIONS + 10
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with half_open(where, limit) as clients:
            for client in clients[MOST_CONNECTIONS:]:
                until_closed(client)
            # What runs now needs scripts that no task has needed before.
            bridge.make_task("acts.note", [], 0)
            assert reports.next().word == "ran"
            for client in clients[:MOST_CONNECTIONS]:
                until_closed(client)
            assert scraped(where)
        assert process.poll() is None


def test_a_listener_is_scraped(
    url: str, server: AnyServer, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with (folder / "acts.py").open("a") as handlers:
        handlers.write("from expirebridge import Discard\ndef fail(): raise Discard('no')\n")
    later = {"func": "acts.note", "delay": "1h"}
    bridge.make_group("left", [later, later])
    bridge.make_group("ended", [])
    options = ("--metrics-port", "0", "--concurrency", "1")
    began = time.time()
    with listener(url, folder, *options):
        where = metrics_of(folder)
        bridge.make_task("acts.fail", [], 0)
        bridge.make_task("no.such", [], 0)
        for _ in range(3):
            bridge.make_task("acts.note", [], "10ms")
        for _ in range(3):
            reports.next()
        bridge.make_task("acts.hold", [], 0)
        assert reports.next().word == "started"
        bridge.make_task("acts.note", [], 0, id="waits")

        def settled() -> Numbers | None:
            numbers = numbers_of(scraped(where))
            ended = sum(numbers["expirebridge_attempts_total"].values())
            return numbers if ended == 5 else None

        # Outcomes are recorded, and counted, a moment after their handlers ended.
        numbers = until(settled, "five attempts in the metrics")
    attempts = numbers["expirebridge_attempts_total"]
    assert attempts["acts.note", "succeeded"] == 3
    assert attempts["acts.fail", "failed"] == 1
    assert attempts["other", "released"] == 1
    assert attempts["acts.hold", "succeeded"] == 0
    assert {function for function, _ in attempts if "." not in function} == {"other"}
    assert numbers["expirebridge_lateness_seconds_count"]["acts.note",] == 3
    assert numbers["expirebridge_lateness_seconds_sum"]["acts.note",] > 0
    assert numbers["expirebridge_handler_duration_seconds_count"]["acts.fail",] == 1
    succeeded = numbers["expirebridge_last_success_timestamp_seconds"]
    assert set(succeeded) == {("acts.note",)}
    assert began <= succeeded["acts.note",] <= time.time()
    assert numbers["expirebridge_claimed_tasks_total"][()] == 6
    assert numbers["expirebridge_claims_total"]["full",] >= 2
    assert ("empty",) in numbers["expirebridge_claims_total"]
    assert numbers["expirebridge_doorbells_total"]["producer",] >= 1
    assert numbers["expirebridge_doorbells_total"]["clock",] >= 1
    assert numbers["expirebridge_gaps_total"][()] >= 1
    states = numbers["expirebridge_tasks"]
    assert (states["running",], states["succeeded",], states["failed",]) == (1, 3, 1)
    assert numbers["expirebridge_overdue_tasks"][()] >= 1
    assert numbers["expirebridge_oldest_overdue_seconds"][()] >= 0
    assert numbers["expirebridge_held_tasks"][()] == 0
    assert numbers["expirebridge_groups"][()] == 1
    assert numbers["expirebridge_group_members_left"][()] == 2
    assert numbers["expirebridge_listeners"][()] == 1
    assert numbers["expirebridge_server_up"][()] == 1


def test_a_producer_counts_what_it_makes(url: str) -> None:
    counting = Metrics(["mail.send"])
    with Bridge(url, hooks=[counting]) as bridge:
        bridge.make_task("mail.send", [], "1h", id="a")
        bridge.make_task("mail.send", [], "1h", id="a", if_exists="keep")
        bridge.make_task("mail.other", [], "1h")
    made = numbers_of(list(counting.registry.collect()))["expirebridge_tasks_made_total"]
    assert made["mail.send", "created"] == made["mail.send", "kept"] == 1
    assert made["other", "created"] == 1
    assert ("mail.other", "created") not in made


def test_a_server_that_is_away_is_a_number_too() -> None:
    counting = Metrics()
    counting.watch(Settings(url="redis://127.0.0.1:1/1"))
    numbers = numbers_of(list(counting.registry.collect()))
    assert numbers["expirebridge_server_up"][()] == 0
    assert "expirebridge_tasks" not in numbers
    assert "expirebridge_claims_total" in numbers


def test_a_port_that_is_taken_is_said_to_be(folder: Path) -> None:
    counting = Metrics()
    port = counting.serve("127.0.0.1", 0).rpartition(":")[2].partition("/")[0]
    result = run("listen", "--tasks", folder, "--metrics-port", port)
    assert result.returncode == 2
    assert f"metrics on 127.0.0.1:{port}: " in result.stderr


@pytest.fixture
def families(url: str, bridge: Bridge, client: redis.Redis, tmp_path: Path) -> set[str]:
    """The names under which Prometheus keeps what is scraped, by family."""
    bridge.schedule("s", "mail.send", every="1h")
    bridge.make_task("mail.send", [], 60, id="w")
    park(client, "w", "sms=17")
    bridge.make_task("mail.send", [], 60, on_signal="mail.answer")
    counting = Metrics()
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    engine = create_engine(ledger)
    own_tables().task.metadata.create_all(engine)
    engine.dispose()
    counting.watch(Settings(url=url, ledger=ledger))
    samples = {
        "counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")
    }  # fmt: skip
    return {
        metric.name + end for metric in counting.registry.collect() for end in samples[metric.type]
    }


def test_the_dashboard_shows_every_number_and_no_other(families: set[str]) -> None:
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in dashboard["templating"]["list"]]
    shown = set(re.findall(r"expirebridge_\w+", " ".join(asked)))
    assert shown <= families
    assert {name for name in families if not name.endswith(("_sum", "_count"))} <= shown


def test_the_alerts_ask_for_numbers_that_there_are(families: set[str]) -> None:
    groups = yaml.safe_load((ROOT / "docs" / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    asked = [set(re.findall(r"expirebridge_\w+", rule["expr"])) for rule in rules]
    assert all(asked)
    assert set.union(*asked) <= families
    names = [rule["alert"] for rule in rules]
    assert len(names) == len(set(names))
    assert all(rule["annotations"]["summary"] for rule in rules)
    causes = set(re.findall(r"[a-z-]+", re.findall(r'cause!~"(.*?)"', str(rules))[0]))
    assert causes <= set(LateCause)
    page = (ROOT / "docs" / "how-to" / "monitor.md").read_text()
    assert sorted(re.findall(r"`(Expirebridge\w+)`", page)) == sorted(names)


def test_objectives_are_counted_from_zero() -> None:
    counting = Metrics(["mail.send"], objectives={"mail.send": 1.5})
    task = Task(id="a", func="mail.send", key=b"", state=State.RUNNING, due=datetime.now(UTC))
    other = replace(task, func="orders.rate")

    def told() -> tuple[float | None, float | None]:
        name, value = "expirebridge_objective_starts_total", counting.registry.get_sample_value
        within, over = (
            value(name, {"function": "mail.send", "result": result})
            for result in ("within", "over")
        )
        return within, over

    assert told() == (0, 0)
    for one in (task, other):
        for lateness in (0.1, 1.5, 2.0):
            counting(Started(task=one, lateness=lateness))
        counting(Misfired(task=one, lateness=90, done="skipped"))
    assert told() == (2, 2)
    labels = {"function": "mail.send"}
    seconds = counting.registry.get_sample_value("expirebridge_objective_seconds", labels)
    assert seconds == 1.5


def test_the_page_lists_every_number(families: set[str]) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    listed = set(re.findall(r"^- `(expirebridge_\w+)`: ", page, re.MULTILINE))
    of_histograms = {
        re.sub("_bucket$", "", name) for name in families if not name.endswith(("_sum", "_count"))
    }
    of_several = {name for name in listed if name.startswith("expirebridge_partition_")}
    of_moves = {"expirebridge_move_on_their_way", "expirebridge_move_idle_seconds"}
    assert listed - of_several - of_moves == of_histograms
    assert of_moves < listed
    assert of_several == {"expirebridge_partition_overdue_tasks", "expirebridge_partition_served"}


def test_partitions_are_scraped_if_there_are_several(url: str, bridge: Bridge) -> None:
    bridge.create_partitions(4)
    bridge.make_task("mail.send", delay=0)
    bridge.make_task("mail.send", delay=60)
    counting = Metrics()
    counting.watch(Settings(url=url))
    numbers = numbers_of(list(counting.registry.collect()))

    assert numbers["expirebridge_partition_served"] == {(str(n), ""): 1 for n in range(4)}
    overdue = numbers["expirebridge_partition_overdue_tasks"]
    assert set(overdue) == {(str(n),) for n in range(4)}
    assert sum(overdue.values()) == 1


@pytest.mark.rest
def test_declared_series_are_scraped(
    url: str, bridge: Bridge, folder: Path, reports: Reports
) -> None:
    with (folder / "acts.py").open("a") as handlers:
        handlers.write("from expirebridge import every\nevery('1s', id='often')(note)\n")
    began = time.time()
    for number in range(3):
        bridge.schedule(f"tenant-{number}", "acts.note", [], every="1h")
    with listener(url, folder, "--metrics-port", "0"):
        until_logged("metrics on http://", folder)
        [where] = re.findall(r"metrics on (\S+)", (folder.parent / "listeners.log").read_text())
        for _ in range(2):  # the first is recorded when the second runs
            reports.next()
        numbers = numbers_of(scraped(where))
    [(label, succeeded)] = numbers["expirebridge_series_last_success_timestamp_seconds"].items()
    assert label == ("often",)
    assert began <= succeeded <= time.time()
    assert numbers["expirebridge_series_behind_seconds"][()] < PATIENCE
    assert set(numbers["expirebridge_series_next_due_timestamp_seconds"]) <= {("often",)}
