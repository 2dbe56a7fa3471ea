"""The commands of those who look after servers and listeners, as they run them."""

import json
import re
from pathlib import Path

import redis

from tests.processes import listener, run, until_subscribed
from tests.servers import AnyServer

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


def report_of(output: str) -> dict[str, str]:
    """The level of each check in a doctor's report."""
    lines = [line for line in output.splitlines() if line[:8].strip() in {"ok", "warning", "error"}]
    return {line[9:23].strip(): line[:8].strip() for line in lines}


# doctor


def test_the_doctor_finds_nothing_wrong_beside_a_listener(url: str, folder: Path) -> None:
    with listener(url, folder):
        until_subscribed(url)
        result = run("doctor", url=url)
    assert (result.returncode, result.stderr) == (0, "")
    assert set(report_of(result.stdout).values()) == {"ok"}
    explained = re.findall(r"^\| `([a-z ]+)` \|.*\|.*\|$", PAGE, re.MULTILINE)
    assert set(report_of(result.stdout)) == set(explained)
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
