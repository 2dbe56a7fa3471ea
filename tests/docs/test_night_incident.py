"""The incident on the page for operators, lived through: what it shows is what is printed."""

import re
from pathlib import Path

import pytest

from expirebridge import Bridge
from tests.kit.invoked import invoke
from tests.kit.patience import until
from tests.kit.processes import ROOT, listener

PAGE = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text()

BROKEN = """
from expirebridge import handler
@handler(retry=[])
async def send(user):
    {host}
"""
FAILS = 'raise ConnectionError("mail.example: connection refused")'


def shown(command: str) -> str:
    """What the page shows under a command."""
    section = PAGE.partition("\n## A night incident\n")[2].partition("\n## ")[0]
    [output] = re.findall(
        rf"^\$ {re.escape(command)}\n(.*?)(?=^\$ |^```)", section, re.MULTILINE | re.DOTALL
    )
    return str(output)


def without_times(text: str) -> list[list[str]]:
    """The words of each line, without what is different at every time and place."""
    text = text.partition("\ntasks that began late")[0]  # where the machine was slow
    text = re.sub(r"\d{4}-\d\d-\d\dT\S+ \(.*?\)", "TIME", text)
    text = re.sub(r'File "\S+"', "FILE", text)
    text = re.sub(r"[\d.]+(ms|s)\b", "TOOK", text)
    return [line.split() for line in text.splitlines() if line.strip()]


def same(command: str, url: str, answer: str | None = None) -> None:
    """Run a command of the page; it must print what the page shows."""
    words = [*command.removeprefix("expirebridge ").split(), *(["--yes"] if answer else [])]
    assert without_times(invoke(*words, url=url)) == without_times(shown(command))


def until_counted(bridge: Bridge, state: str, count: int) -> None:
    until(lambda: getattr(bridge.count(), state) >= count, f"{count} that are {state}")


@pytest.mark.rest
def test_a_night_incident(url: str, bridge: Bridge, folder: Path) -> None:
    module = folder / "mail.py"
    module.write_text(BROKEN.format(host=FAILS))
    (folder / "orders.py").write_text("async def rate(order): ...\n")
    for n in range(1, 32):
        bridge.make_task("mail.send", [n], 0, id=f"mail-{n}")
        bridge.make_task("orders.rate", [n], 0, id=f"order-{n}")
    with listener(url, folder):
        until_counted(bridge, "failed", 31)
        until_counted(bridge, "succeeded", 31)
        set_order(bridge)
        same("expirebridge stats", url)
        same("expirebridge failed list --since 1h --limit 2", url)
        # All that the page shows is printed; more may be.
        printed = without_times(invoke("show", "mail-31", url=url))
        on_page = without_times(shown("expirebridge show mail-31"))
        assert on_page
        assert [line for line in on_page if line not in printed] == []
    module.write_text(BROKEN.format(host="pass"))
    with listener(url, folder):
        same("expirebridge failed retry --func mail.send --since 2h", url, answer="y")
        until_counted(bridge, "succeeded", 62)
        same("expirebridge failed list", url)


def set_order(bridge: Bridge) -> None:
    """They may have failed in any order: the page shows the last two first."""
    for place, id in enumerate(("mail-30", "mail-31"), 1):
        bridge._store.client.zadd("expirebridge:failed", {id: 4102444800000 + place})
