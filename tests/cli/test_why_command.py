"""`expirebridge why` from the terminal."""

import re

from expirebridge import Bridge
from expirebridge.cli.ending import NOT_POSSIBLE
from expirebridge.limits.calls import declare_limits
from expirebridge.store.client import Store
from tests.kit.invoked import invoke, invoke_json, run
from tests.kit.processes import ROOT
from tests.kit.steps import claim

PAGE = (ROOT / "docs" / "how-to" / "troubleshoot.md").read_text()


def test_it_says_why_a_task_waits_since_when_and_what_to_do(
    url: str, bridge: Bridge, store: Store
) -> None:
    bridge.hold(func="mail.send", reason="provider down", by="ann")
    bridge.make_task("mail.send", [], 0, id="a")
    claim(store)
    lines = invoke("why", "a", url=url).splitlines()
    assert re.fullmatch(r"since   \S+Z \((\d+(ms|s) ago)\)", lines.pop(2))
    assert lines == [
        "state   waiting",
        "why     on hold: func mail.send, by ann: provider down, 1st in line",
        "remedy  expirebridge release --func mail.send",
    ]
    told = invoke_json("why", "a", url=url)
    assert re.fullmatch(r"\d{4}-.*\+00:00", told.pop("since"))
    assert told == {
        "state": "waiting",
        "code": "hold",
        "text": "on hold: func mail.send, by ann: provider down, 1st in line",
        "remedy": "expirebridge release --func mail.send",
    }


def test_the_page_shows_what_is_printed(url: str, bridge: Bridge, store: Store) -> None:
    fields = [("f sms.send", b'[["sms",0,"customer",null]]'), ("l sms", b'{"most":2}')]
    store.run(declare_limits("aa", fields))
    for id in ("sms-29", "sms-30", "sms-31"):
        bridge.make_task("sms.send", [17], 0, id=id)
        claim(store, id)
    [shown] = re.findall(r"^\$ expirebridge why sms-31\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    printed = invoke("why", "sms-31", url=url)
    assert re.sub("since.*", "since", printed) == re.sub("since.*", "since", shown)


def test_there_is_no_such_task(url: str) -> None:
    result = run("why", "a", url=url)
    assert (result.returncode, result.stdout) == (NOT_POSSIBLE, "")
    told = "there is no task 'a': it was never made, or has ended and was forgotten"
    assert result.stderr == f"expirebridge: {told}\n"
