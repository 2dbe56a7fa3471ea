"""Commands behave alike on each topology; the table of topologies.md names the rest."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner, Result

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer, free_port
from expirebridge.errors import InvalidTask
from tests.kit.cluster import Cluster
from tests.kit.invoked import app, commands
from tests.kit.modules import forgotten, put
from tests.kit.patience import PATIENCE, until
from tests.kit.private_keys import K1, K2
from tests.kit.processes import listener
from tests.kit.sentinels import Sentinels
from tests.kit.servers import EMBEDDED, FEW, SERVERS

if EMBEDDED not in SERVERS:
    pytest.skip("for the suite that has Valkey 9.1 and Redis 7.0", allow_module_level=True)

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "topologies.md").read_text(
    encoding="utf-8"
)
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
TABLE = {first: cells for first, *cells in ROWS}
"""What is on one server, with sentinels and in a cluster."""
HANDLERS = """
from expirebridge import Discard, every

def note(n=0):
    return n

def boom():
    raise Discard("boom")

@every("1h")
def tick(): ...
"""
STEPS = [
    "key dev:7 acts.note [1]",
    "make acts.note [1] --in 1h --id a --tag x",
    "make acts.note [2] --in 2h --id b --tag x --tag y --json",
    "make acts.note [1] --in 1h --id a --if-exists keep",
    "watch w acts.note --ttl 3h",
    "beat w",
    "show a",
    "show a --json",
    "3 show nobody",
    "why a",
    "why a --json",
    "limits",
    "hold --tag z",
    "holds",
    "release --tag z",
    "3 let-pass a",
    "REFUSED weight sms acme 2",
    "REFUSED limit sms 2",
    "list",
    "list --tag y --json",
    "list --limit 1",
    "put-off a --by 1h",
    "put-off --tag x --by 1h",
    "reschedule a --in 4h",
    "edit a --args [3]",
    "edit a --args [1] --json",
    "3 signal a",
    "pause a",
    "pause --tag x",
    "resume --tag x",
    "3 beat a",
    "run b",
    "cancel b",
    "cancel --tag x --yes",
    "count",
    "count --json",
    "stats",
    "stats --json",
    "top",
    "forecast",
    "forecast --json",
    "scale",
    "scale --json",
    "1 check",
    "doctor",
    "doctor --role producer --json",
    "acl",
    "reseal",
    "reseal --json",
    "partitions show",
    "3 partitions create 64",
    "functions load",
    "functions load",
    "functions show",
    "handlers --fleet",
    "compat --tasks {tasks}",
    "export {file}",
    "import {file}",
    "LISTEN",
    "check",
    "check --here",
    "make acts.note [1] --in 1ms --id due",
    "make acts.boom --in 1ms --id boom",
    "ENDED",
    "failed list",
    "failed retry --yes",
    "ENDED AGAIN",
    "failed purge --yes",
    "series list",
    "series list --json",
    "series show acts.tick",
    "series next acts.tick -n 2",
    "series pause acts.tick",
    "series resume acts.tick",
    "series run acts.tick",
    "METRICS",
    "STOP",
    "series remove acts.tick",
    "series prune --yes",
    "GROUP",
    "groups list",
    "groups show many",
    "groups close many",
    "groups cancel many --yes",
    "move --to {url} --to-prefix other",
]
"""What is done on each, with the exit code if it is another one than 0."""
OF_SENTINELS = {
    "top": "`top`, dashboard",
    "doctor": "`doctor`",
    "doctor --role producer --json": "`doctor`",
    "acl": "rights",
}
OF_CLUSTERS = {
    "stats --json": "`top`, dashboard",
    "doctor": "`doctor`",
    "doctor --role producer --json": "`doctor`",
    "acl": "rights",
    "partitions show": "[partitions](../how-to/grow.md#several-partitions)",
    "3 partitions create 64": "[partitions](../how-to/grow.md#several-partitions)",
    "functions load": "functions for other languages",
    "METRICS": "metrics",
}
"""What answers otherwise, with its row in the table."""
ELSEWHERE = {"dashboard", "demo", "init", "listen", "server", "functions scripts"}
"""Commands that have tests of their own for each topology, or that ask no server."""


@pytest.mark.rest
def test_commands_answer_as_on_one_server_or_the_table_says_otherwise(tmp_path: Path) -> None:
    binary, folder = SERVERS[FEW[0]], tmp_path / "walked"
    put(folder, "acts.py", HANDLERS)
    with (
        forgotten(folder),
        EmbeddedServer(binary=binary) as one,
        EmbeddedServer(binary=binary) as target,
        Sentinels(binary) as sentinels,
        Cluster(binary) as cluster,
    ):
        answers = [
            dict(walked(url, f"redis://127.0.0.1:{target.port}/{number}", folder))
            for number, url in enumerate((one.url, sentinels.url, cluster.url))
        ]
    alone, *others = answers
    for there, rows, column in zip(others, (OF_SENTINELS, OF_CLUSTERS), (1, 2), strict=True):
        different = {step: there[step] for step in alone if there[step] != alone[step]}
        assert different.keys() == rows.keys(), {
            step: (alone[step], there[step]) for step in different.keys() ^ rows.keys()
        }
        for row in rows.values():
            assert TABLE[row][column] not in {"", "the same", TABLE[row][0]}


def walked(url: str, target: str, tasks: Path) -> Iterator[tuple[str, str]]:
    """Take each step, and give what it answered, without what differs from run to run."""
    port = free_port()
    places = {"tasks": str(tasks), "file": str(tasks.with_name("tasks.ndjson")), "url": target}
    with ExitStack() as running:
        for step in STEPS:
            match step:
                case "LISTEN":
                    options = ("--metrics-port", str(port))
                    running.enter_context(stopped_in_order(url, tasks, *options))
                    until(lambda: asked("check", url).exit_code == 0)
                case "ENDED" | "ENDED AGAIN":
                    until(lambda: ended(url) == {"due": "succeeded", "boom": "failed"})
                case "GROUP":
                    with Bridge(url) as bridge:
                        member = {"func": "acts.note", "args": [1], "delay": "1h"}
                        bridge.make_group("many", [member], close=False)
                case "STOP":
                    running.close()
                case "METRICS":
                    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as reply:
                        yield step, "\n".join(sorted(metrics_in(reply.read().decode())))
                case refused if refused.startswith("REFUSED "):
                    with pytest.raises(InvalidTask) as error:
                        asked(step.removeprefix("REFUSED "), url)
                    yield step, plain(str(error.value))
                case _:
                    yield step, plain(taken(step, url, places))


@contextmanager
def stopped_in_order(url: str, tasks: Path, *options: str) -> Iterator[None]:
    """A listener that says goodbye when the block ends."""
    with listener(url, tasks, *options) as process:
        yield
        process.terminate()
        assert process.wait(PATIENCE) == 0


def taken(step: str, url: str, places: dict[str, str]) -> str:
    """What a step answers; its exit code is the one that the step names."""
    first, _, rest = step.partition(" ")
    code, line = (int(first), rest) if first.isdigit() else (0, step)
    shown = asked(line.format(**places), url)
    assert shown.exit_code == code, f"{step} at {url}: {shown.output}"
    return shown.output.replace(url, "URL").replace(places["url"], "TARGET")


def asked(line: str, url: str) -> Result:
    env = {"EXPIREBRIDGE_URL": url, "COLUMNS": "200"}
    if line.startswith("reseal"):  # no other command needs them
        env |= {"EXPIREBRIDGE_KEYS": f"{K2} {K1}"}
    return CliRunner().invoke(app, line.split(), env=env, catch_exceptions=False)


def ended(url: str) -> dict[str, str]:
    """The states of the tasks that a listener runs."""
    with Bridge(url) as bridge:
        found = [bridge.get("due"), bridge.get("boom")]
    return {task.id: task.state for task in found if task is not None}


VARIES = [
    (r"\w+(\+\w+)?://\S+", "URL"),
    (r"\{\w{3}\}", ""),  # the tag of a partition
    (r"--cursor \S+|\"cursor\": \"\S+\"", "CURSOR"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)?", "TIME"),
    (r"[0-9a-f]{16,}", "ID"),
    (r"[\w-]+:\d+:[0-9a-f]{8}", "LISTENER"),
    (r"\d+(\.\d+)?(ms|[smhd])( \d+(ms|[smhd]))?\b", "N"),
    (r"\d+(\.\d+)?(mb|kb)?", "N"),
    (r"\(in N\)|\(N ago\)", "WHEN"),
    (r"[ -]+", " "),
]


def plain(shown: str) -> str:
    """Without what differs from run to run, and in a cluster the tags of names."""
    for pattern, name in VARIES:
        shown = re.sub(pattern, name, shown)
    return shown


def metrics_in(text: str) -> set[str]:
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line[:1] not in {"", "#"}}


def test_each_command_is_walked() -> None:
    walked = " ".join(STEPS)
    names = {name for name, _ in commands() if not name.startswith("ledger ")}
    missing = {name for name in names if not re.search(rf"(^| ){name}( |$)", walked)}
    assert missing == ELSEWHERE
