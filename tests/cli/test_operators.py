"""The commands of those who look after servers and listeners, as they run them."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
import redis

from expirebridge import AsyncBridge, Bridge
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.settings import Settings
from tests.kit import processes
from tests.kit.invoked import run
from tests.kit.processes import Reports, listener, until_subscribed
from tests.kit.servers import FEW, SERVERS, AnyServer
from tests.kit.witness import Witness, listening

REDIS_CLI = shutil.which("redis-cli")
PAGES = Path(__file__).parents[2] / "docs" / "how-to"
DOCTOR_PAGE = (PAGES.parent / "reference" / "doctor.md").read_text()
RIGHTS_PAGE = (PAGES / "prepare-a-server.md").read_text()


def report_of(output: str) -> dict[str, str]:
    """The level of each check in a doctor's report."""
    lines = [line for line in output.splitlines() if line[:8].strip() in {"ok", "warning", "error"}]
    return {line[9:23].strip(): line[:8].strip() for line in lines}


# doctor


async def test_the_doctor_finds_nothing_wrong_beside_a_listener(url: str) -> None:
    async with listening(Settings(url=url), hearing := Witness()):
        await hearing.until_hearing()
        result = await asyncio.to_thread(run, "doctor", url=url)
    assert (result.returncode, result.stderr) == (0, "")
    assert set(report_of(result.stdout).values()) == {"ok"}
    explained = re.findall(r"^\| `([a-z ]+)` \|.*\|.*\|$", DOCTOR_PAGE, re.MULTILINE)
    # For a server that sentinels name, for a cluster, for databases with series, limits, holds,
    # groups or a ledger or in a newer format, for servers with functions, and for a folder of
    # handlers.
    elsewhere = {
        "sentinels", "failover", "cluster", "coverage", "partitions", "misplaced keys", "nodes",
        "series", "limits", "numbers", "holds", "groups", "keys", "arguments", "ledger",
        "ledger rows", "ledger series", "ledger clock", "ledger keys", "horizon", "library", "move",
        "format", "handlers",
    }  # fmt: skip
    assert set(report_of(result.stdout)) == set(explained) - elsewhere
    assert result.stdout.startswith(f"{url}\n\nok       version        ")
    assert result.stdout.endswith("\n\n0 errors, 0 warnings, 15 ok\n")


def test_the_doctor_says_what_is_wrong_and_what_mends_it(url: str, client: redis.Redis) -> None:
    client.config_set("notify-keyspace-events", "Ex")
    client.config_set("maxmemory-policy", "volatile-ttl")
    warned = run("doctor", url=url)
    assert (warned.returncode, warned.stderr) == (0, "")
    client.config_set("maxmemory", "1gb")
    ill = run("doctor", url=url)
    assert (ill.returncode, ill.stderr) == (5, "")
    assert report_of(warned.stdout)["eviction"] == "warning"
    levels = report_of(ill.stdout)
    assert (levels["eviction"], levels["events"]) == ("error", "warning")
    assert "-> CONFIG SET maxmemory-policy noeviction\n" in ill.stdout
    assert "-> CONFIG SET notify-keyspace-events xEg\n" in ill.stdout
    assert "\n\n1 error, 2 warnings, 11 ok\n" in ill.stdout
    shown = json.loads(run("doctor", "--json", url=url).stdout)
    assert shown["ok"] is False
    assert {one["check"]: one["level"] for one in shown["findings"]} == levels
    [eviction] = [one for one in shown["findings"] if one["check"] == "eviction"]
    assert eviction["remedy"] == "CONFIG SET maxmemory-policy noeviction"


@pytest.mark.parametrize("name", FEW)
def test_the_page_shows_what_the_doctor_prints(name: str) -> None:
    defaults = {
        "notify-keyspace-events": "",
        "appendonly": "no",
        "save": "3600 1",
        "client-output-buffer-limit": "pubsub 32mb 8mb 60",
    }
    cache = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}
    with EmbeddedServer(binary=SERVERS[name], options=defaults | cache) as server:
        with Bridge(server.url) as bridge:
            bridge.make_task("mail.send", [1], 0)
        shown = run("doctor", url=server.url).stdout
    [page] = re.findall(r"^\$ expirebridge doctor\n(.*?)```", DOCTOR_PAGE, re.MULTILINE | re.DOTALL)
    assert without_numbers(shown) == without_numbers(page)


def without_numbers(report: str) -> str:
    """What is the same for every server, and at every time."""
    return re.sub(r"redis://\S+|(Redis|Valkey) [0-9.]+|\d+mb of|by [0-9.]+\w+", "...", report)


def test_the_doctor_hides_passwords_and_says_when_it_comes_to_nobody(server: AnyServer) -> None:
    with redis.Redis(port=server.port) as admin:
        admin.execute_command("ACL", "SETUSER", "me", "on", ">secret", "~*", "&*", "+@all")
        result = run("doctor", url=f"redis://me:secret@127.0.0.1:{server.port}/1")
        refused = run("doctor", url=f"redis://me:wrong@127.0.0.1:{server.port}/1")
        admin.execute_command("ACL", "DELUSER", "me")
    assert result.stdout.startswith(f"redis://me:***@127.0.0.1:{server.port}/1\n")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("expirebridge: the server refused the login: ")
    away = run("doctor", "--json", url="redis://me:secret@127.0.0.1:1/1")
    assert (away.returncode, away.stdout) == (1, "")
    assert "no answer from the server" in away.stderr
    assert "secret" not in result.stdout + away.stderr


# check


def test_a_probe_follows_a_listener_s_life(url: str, folder: Path) -> None:
    before = run("check", url=url)
    assert (before.returncode, before.stderr) == (1, "")
    assert before.stdout == "not ok: no listener beats: due tasks will wait\n"
    with listener(url, folder):
        until_subscribed(url)
        well = processes.run("check", "--here", url=url)
        shown = json.loads(run("check", "--json", url=url).stdout)
    assert (well.returncode, well.stderr) == (0, "")
    assert well.stdout.startswith("ok: 1 listener beats on ")
    assert well.stdout.count("\n") == 1
    assert shown["ok"] is True
    assert [one["check"] for one in shown["findings"]] == ["listeners", "overdue", "subscriptions"]


def test_a_probe_finds_a_listener_that_does_nothing(
    url: str, folder: Path, bridge: Bridge, reports: Reports
) -> None:
    """It beats from a thread of its own while a handler blocks it."""
    with (folder / "acts.py").open("a") as handlers:
        handlers.write("async def jam():\n    block()\n")
    # It may take its time to beat, and the commands theirs.
    with listener(url, folder, "--lease", "600"):
        until_subscribed(url)
        bridge.make_task("acts.jam", [], 0)
        reports.next()
        bridge.make_task("acts.note", [], 0)
        while bridge.count().overdue == 0:
            pass
        check = ("check", "--lease", "600")
        result = run(*check, "--max-overdue", "0s", url=url)
        patient = run(*check, "--max-overdue", "1h", url=url)
        here = run(*check, "--here", url=url)
        here_in_time = run(*check, "--here", "--max-overdue", "0s", url=url)
    assert (result.returncode, patient.returncode) == (1, 0)
    assert (here.returncode, here_in_time.returncode) == (0, 1)
    assert "overdue" not in here.stdout
    assert "not ok: 1 task is overdue, the first for" in result.stdout


def test_a_probe_answers_although_the_server_does_not() -> None:
    away = run("check", "--json", url="redis://me:secret@127.0.0.1:1/1")
    assert (away.returncode, away.stderr) == (1, "")
    [finding] = json.loads(away.stdout)["findings"]
    assert (finding["check"], finding["level"]) == ("server", "error")
    with EmbeddedServer() as stopped:
        assert stopped.pid is not None
        os.kill(stopped.pid, signal.SIGSTOP)
        silent = run("check", url=stopped.url)
        os.kill(stopped.pid, signal.SIGCONT)
    assert (silent.returncode, silent.stderr) == (1, "")
    assert silent.stdout.startswith("not ok: no answer from the server")


def test_a_probe_refuses_what_is_no_duration() -> None:
    result = run("check", "--max-overdue", "soon")
    assert (result.returncode, result.stdout) == (2, "")
    assert "max-overdue='soon': not a duration" in result.stderr


# acl


def test_the_page_shows_what_is_printed() -> None:
    assert run("acl", "dashboard").stdout in RIGHTS_PAGE


async def test_the_printed_lines_make_logins_that_work(
    server: AnyServer, url: str, client: redis.Redis
) -> None:
    if REDIS_CLI is None:
        pytest.skip("needs redis-cli")
    options = ["--redis-6"] if client.info("server")["redis_version"].startswith("6.") else []
    lines = run("acl", *options, url=url).stdout
    done = await asyncio.to_thread(
        subprocess.run,
        [REDIS_CLI, "-p", str(server.port)],
        input=lines.replace("PASSWORD", "secret"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["OK"] * 3
    try:
        logins = {
            role: url.replace("//", f"//expirebridge-{role}:secret@")
            for role in ("producer", "listener", "dashboard")
        }
        made = await asyncio.to_thread(
            run, "make", "test.quick", "--in", "0s", "--id", "a", url=logins["producer"]
        )
        assert (made.returncode, made.stderr) == (0, "")
        witness = Witness()
        async with (
            listening(Settings(url=logins["listener"]), witness, quick=lambda: None),
            AsyncBridge(logins["dashboard"]) as bridge,
        ):
            await witness.until_hearing()
            await witness.until_ended()
            task = await bridge.get("a")
            assert task is not None
            assert task.state == "succeeded"
            probes = [
                await asyncio.to_thread(run, "check", url=logins[role])
                for role in ("listener", "dashboard")
            ]
        assert [probe.returncode for probe in probes] == [0, 0], probes
    finally:
        for role in ("producer", "listener", "dashboard"):
            client.execute_command("ACL", "DELUSER", f"expirebridge-{role}")


@pytest.mark.parametrize("name", FEW)
def test_the_lines_for_a_file_load(name: str, tmp_path: Path) -> None:
    options = ["--redis-6"] if name.startswith("redis-6") else []
    line = run("acl", "dashboard", "--conf", "--prefix", "my*app", *options).stdout
    assert line.startswith(r"user my*app-dashboard on >PASSWORD resetchannels ~my\*app ~my\*app:* ")
    users = tmp_path / "users.acl"
    users.write_text("user default on nopass ~* &* +@all\n" + line.replace("PASSWORD", "secret"))
    with (
        EmbeddedServer(binary=SERVERS[name], options={"aclfile": str(users)}) as other,
        Bridge(f"redis://my*app-dashboard:secret@127.0.0.1:{other.port}/1", prefix="my*app") as one,
    ):
        assert one.count().pending == 0
