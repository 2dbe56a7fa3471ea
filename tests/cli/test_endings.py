"""How the process of a command ends: as it does in this process, where other tests run it."""

import pytest

from expirebridge import Bridge
from tests.kit import invoked, processes


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["list", "--json"], 0),
        (["show", "m9"], 3),
        pytest.param(["make", "mail.send", "[1", "--in", "1h"], 2, marks=pytest.mark.rest),
        pytest.param(["count", "--url", "redis://127.0.0.1:1/1"], 1, marks=pytest.mark.rest),
        (["list", "--statte", "failed"], 2),
    ],
)
def test_a_process_ends_as_the_command_does_here(
    url: str, bridge: Bridge, words: list[str], code: int
) -> None:
    bridge.make_task("mail.send", ["é"], "1h", id="a")
    real, here = (
        each(*words, url=url, EXPIREBRIDGE_LEES="1") for each in (processes.run, invoked.run)
    )
    assert real.returncode == here.returncode == code
    assert real.stdout == here.stdout
    assert real.stderr.replace("python -m expirebridge", "expirebridge") == here.stderr
    assert "EXPIREBRIDGE_LEES" in here.stderr
