"""Handlers with limits in a database of several partitions: refused, and said before."""

import json
import subprocess
from pathlib import Path

import pytest

from expirebridge import Bridge
from tests.kit import processes
from tests.kit.invoked import run
from tests.kit.modules import as_if_new

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


@pytest.mark.parametrize(
    "words", [pytest.param([], marks=pytest.mark.rest), ["--workers", "2"]], ids=["one", "workers"]
)
def test_a_listener_does_not_start_and_says_why(
    several: str, folder: Path, words: list[str]
) -> None:
    result = processes.run("listen", "--tasks", folder, *words, url=several)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == f"expirebridge: {TOLD}"
    assert "Traceback" not in result.stderr


def run_with(folder: Path, *words: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run the command with these handlers."""
    with as_if_new(folder):
        return run(*words, "--tasks", folder, url=url)


def test_the_gate_before_a_deploy_says_so(several: str, folder: Path) -> None:
    result = run_with(folder, "compat", url=several)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"expirebridge: {TOLD}\n"
    (folder / "mail.py").write_text("def send(): ...\n")
    assert run_with(folder, "compat", url=several).returncode == 0


def test_the_doctor_says_so_if_it_is_given_the_handlers(several: str, folder: Path) -> None:
    result = run_with(folder, "doctor", "--json", url=several)
    assert result.returncode == 5
    findings = json.loads(result.stdout)["findings"]
    [told] = [one for one in findings if one["check"] == "handlers"]
    assert (told["level"], told["message"]) == ("error", TOLD)
    assert run("doctor", url=several).returncode == 0


def test_one_partition_is_fine(url: str, folder: Path) -> None:
    assert run_with(folder, "compat", url=url).returncode == 0
    result = run_with(folder, "doctor", url=url)
    assert result.returncode == 0
    assert "ok       handlers       their limits can be kept" in result.stdout
