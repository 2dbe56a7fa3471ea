"""Handlers with limits in a database of several partitions: refused, and said before."""

import json
from pathlib import Path

import pytest

from expirebridge import Bridge
from tests.kit.processes import run

TOLD = (
    "the database has 4 partitions, and limits need a database of one: a task's id decides where "
    "it is, so no partition could count what runs in the others. Use a database of one partition "
    "for handlers with limits (in a cluster, give it a prefix with a tag of its own, such as "
    "{limited}), or remove limit= and rate="
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "mail.py").write_text(
        "from expirebridge import Rate, handler\n@handler(rate=Rate(1, '1s'))\ndef send(): ...\n"
    )
    return folder


@pytest.fixture
def several(bridge: Bridge, url: str) -> str:
    """The URL of a database with four partitions."""
    bridge.create_partitions(4)
    return url


def test_a_listener_does_not_start_and_says_why(several: str, folder: Path) -> None:
    for words in ((), ("--workers", "2")):
        result = run("listen", "--tasks", folder, *words, url=several)
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1] == f"expirebridge: {TOLD}"
        assert "Traceback" not in result.stderr


def test_the_gate_before_a_deploy_says_so(several: str, folder: Path) -> None:
    result = run("compat", "--tasks", folder, url=several)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"expirebridge: {TOLD}\n"
    (folder / "mail.py").write_text("def send(): ...\n")
    assert run("compat", "--tasks", folder, url=several).returncode == 0


def test_the_doctor_says_so_if_it_is_given_the_handlers(several: str, folder: Path) -> None:
    result = run("doctor", "--tasks", folder, "--json", url=several)
    assert result.returncode == 5
    findings = json.loads(result.stdout)["findings"]
    [told] = [one for one in findings if one["check"] == "handlers"]
    assert (told["level"], told["message"]) == ("error", TOLD)
    assert run("doctor", url=several).returncode == 0


def test_one_partition_is_fine(url: str, folder: Path) -> None:
    assert run("compat", "--tasks", folder, url=url).returncode == 0
    result = run("doctor", "--tasks", folder, url=url)
    assert result.returncode == 0
    assert "ok       handlers       their limits can be kept" in result.stdout
