"""What docs/how-to/move.md shows, done as it shows it."""

import re
import subprocess
from pathlib import Path
from typing import IO, Any

import pytest

from expirebridge import Bridge, Change
from tests.kit.patience import PATIENCE
from tests.kit.processes import COMMAND, listener
from tests.kit.servers import AnyServer

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "move.md").read_text(encoding="utf-8")
STEPS = PAGE.partition("\n## With files\n")[0]
SHOWN = re.findall(r"^ *\$ expirebridge (.+)$", STEPS, re.MULTILINE)
SAYS = "moved what can go; what producers still make here follows. When none uses this URL "
HANDLERS = "def send(*args):\n    pass\n"


def words(shown: str, old: str, new: str) -> list[str]:
    text = shown.replace("$OLD", old).replace("$NEW", new)
    return [*COMMAND, *text.split()]


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


@pytest.mark.rest
def test_the_steps_of_the_page(server: AnyServer, url: str, bridge: Bridge, tmp_path: Path) -> None:
    create, doctor, move = SHOWN
    new_url = f"redis://127.0.0.1:{server.port}/3"
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "mail.py").write_text(HANDLERS)
    bridge.make_tasks([{"func": "mail.send", "args": [n], "delay": 3600} for n in range(300)])
    ran = subprocess.run(words(create, url, new_url), capture_output=True, text=True, check=True)
    assert ran.stdout == "16 partitions\n"
    assert "16 partitions\n" in PAGE
    assert subprocess.run(words(doctor, url, new_url), check=False).returncode in {0, 5}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        listener(url, folder) as old_listener,
        listener(new_url, folder),
        subprocess.Popen(words(move, url, new_url), **pipes) as mover,
        Bridge(new_url) as new,
    ):
        try:
            said = line_of(mover.stderr)
            assert said in PAGE.replace("    ", "")
            assert SAYS in said
            bridge.make_task("mail.send", [1], "1h", id="late")
            namespace: dict[str, Any] = {}
            [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
            exec(example, namespace)  # noqa: S102 - the page's own
            bridge.make_task("mail.send", [1], "1h", id="unwanted")
            assert namespace["cancel"](bridge, new, "unwanted") is Change.CANCELLED
            old_listener.terminate()
            assert old_listener.wait(PATIENCE) == 0
            output, _ = mover.communicate(timeout=PATIENCE)
        finally:
            mover.kill()
        assert mover.returncode == 0
        assert re.fullmatch(r"moved  30[12]\n", output)
        assert re.search(r"^ *moved  1000000$", PAGE, re.MULTILINE)
        assert new.count().pending == 301
        assert new.get("late") is not None
        assert bridge.count().pending == 0
