"""What README shows, done as it shows it."""

import re
import subprocess
import sys
from pathlib import Path

import redis

from expirebridge import Bridge, State
from tests.kit.processes import listener, run, until_subscribed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(first_line: str) -> str:
    """The Python block that begins with this comment."""
    found = re.search(rf"```python\n({re.escape(first_line)}\n.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_producer_and_the_handler_work_together(
    url: str, bridge: Bridge, client: redis.Redis, tmp_path: Path
) -> None:
    (tmp_path / "producer.py").write_text(block("# producer.py"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mail.py").write_text(block("# tasks/mail.py"))
    produced = subprocess.run(
        [sys.executable, tmp_path / "producer.py"],
        env={"EXPIREBRIDGE_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    key = produced.stdout.strip()
    assert "redis-cli -n 1 EXPIRE" in README
    id = key.partition(":")[0]
    with listener(url, tmp_path / "tasks"):
        # A key that expires before anybody listens says nothing of its new time.
        until_subscribed(url)
        assert client.expire(key, 1) == 1
        while (task := bridge.get(id)) and not task.state.finished:
            pass
    assert task is not None
    assert task.state is State.SUCCEEDED


def test_the_test_passes(tmp_path: Path) -> None:
    (tmp_path / "test_mail.py").write_text(block("# test_mail.py"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mail.py").write_text(block("# tasks/mail.py"))
    command = [sys.executable, "-m", "pytest", "-p", "no:valkey", "test_mail.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout


def test_the_commands_that_it_names_are_there() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"\$ make (\w+)", README):
        assert target in targets
    overview = run("--help").stdout
    for command in re.findall(r"[`$] ?expirebridge (\w+)", README):
        assert command in overview
