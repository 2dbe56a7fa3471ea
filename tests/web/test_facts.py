"""The pages of a task, a series and a group have each field that is described for a page."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape

from expirebridge import Bridge, State, Task, Then
from expirebridge.groups import fields as of_groups
from expirebridge.series import fields as of_series
from expirebridge.task import fields as of_tasks
from expirebridge.task.fields import ShownField
from expirebridge.web.pages import APART
from tests.web.serving import Asking, words

NOW = datetime(2026, 5, 1, tzinfo=UTC)
FULL = Task(
    id="a", func="mail.send", args=["first"], key=b"", state=State.FAILED, due=NOW, created=NOW,
    attempt=3, tags=("red",), started=NOW, ended=NOW, result="its result", error="its error",
    after="b", then="c", in_clear=("error",), on_signal="mail.answer", urgent=True,
)  # fmt: skip


def labels(described: Iterable[ShownField]) -> list[str]:
    """Those of the facts on a page, in their order."""
    on_page = sorted((one for one in described if one.order), key=lambda one: one.order)
    return [one.label for one in on_page]


def facts(page: str) -> Sequence[tuple[str, str]]:
    """The labels and texts of a page."""
    pairs = re.findall(r"<dt>(.*?)</dt><dd.*?>(.*?)</dd>", page, re.DOTALL)
    return [(unescape(label), words(text)) for label, text in pairs]


async def test_a_task_has_all_facts(asking: Asking, bridge: Bridge) -> None:
    """A redaction gives the task of this page all that it can have."""
    bridge.make_task("mail.send", delay="1h", id="a")
    async with asking(redact=lambda task: replace(FULL, state=task.state)) as pages:
        page = (await pages.get("/task?id=a")).text
        arguments = (await pages.get("/task/arguments?id=a")).text
    described = [one for one in of_tasks.FIELDS if one.name not in APART]
    assert [label for label, _ in facts(page)] == labels(described)
    assert "" not in dict(facts(page)).values()
    assert {"func", "args", "result", "error"} == APART
    assert all(text in words(page) for text in ("mail.send", "its error"))
    assert all(text in words(arguments) for text in ("first", "its result"))


async def test_a_group_has_all_facts(asking: Asking, bridge: Bridge) -> None:
    bridge.make_group("import-7", [{"func": "mail.send", "delay": "1h"}], then=Then("mail.report"))
    bridge.cancel_group("import-7")
    async with asking() as pages:
        page = (await pages.get("/groups?name=import-7")).text
    assert [label for label, _ in facts(page)] == labels(of_groups.FIELDS)


async def test_a_series_has_all_facts(asking: Asking, bridge: Bridge) -> None:
    bridge.schedule("hourly", "db.tidy", every="1h")
    async with asking() as pages:
        page = (await pages.get("/series?id=hourly")).text
    assert [label for label, _ in facts(page)] == labels(of_series.FIELDS)


async def test_a_task_has_what_capabilities_add(asking: Asking, bridge: Bridge) -> None:
    bridge.make_group("import-7", [{"func": "mail.send", "delay": "1h"}], then=Then("mail.report"))
    bridge.schedule("hourly", "db.tidy", every="1h")
    [tick] = bridge.list(func="db.tidy").tasks
    async with asking() as pages:
        ids = ("import-7@g0", "import-7@then", tick.id)
        shown = [dict(facts((await pages.get("/task", params={"id": id})).text)) for id in ids]
    assert shown[0]["Group"].startswith("import-7 closed, 1 of 1 member left")
    assert shown[1]["Follow-up of group"].startswith("import-7 closed, 1 of 1 member left")
    assert shown[2]["Series"].startswith(f"hourly tick {tick.tick:%Y-%m-%d %H:%M:%S}")
