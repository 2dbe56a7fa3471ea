"""The events of the log: those in the code are those in docs/reference/log-events.md."""

import ast
import json
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import expirebridge
from expirebridge import State, Task
from expirebridge.hooks import End, Ended
from expirebridge.observe import logs
from expirebridge.observe.logs import JsonLines, log_event
from expirebridge.task.texts import event

PACKAGE = Path(expirebridge.__file__).parent
PAGE = PACKAGE.parent / "docs" / "reference" / "log-events.md"


def named_in_the_code() -> set[str]:
    """The first argument of each call of `event`, or of `fields_of`."""
    found = {end.value for end in End}
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        if not re.search(r"\b(event|fields_of)\(", text):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Call(
                    func=ast.Name(id="event" | "fields_of"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    found.add(name)
    return found


def test_every_event_is_described() -> None:
    _, _, tables = PAGE.read_text().partition("\n## Events\n")
    rows = re.findall(r"^\| (`[^|]*) \|", tables, re.MULTILINE)
    described = re.findall(r"`([^`]+)`", " ".join(rows))
    assert sorted(described) == sorted(named_in_the_code() | {"other"})


@pytest.mark.parametrize("text", ["plain", 'a "quote"\nand a newline', "\udcff", "\x00 é 🎉"])
def test_a_line_of_json_is_one_line_whatever_it_says(text: str) -> None:
    record = logging.LogRecord("expirebridge", logging.WARNING, "", 0, "%s", (text,), None)
    record.__dict__ |= event("gap", reason=7, path=Path("/x"))
    line = JsonLines().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert (read["level"], read["event"], read["reason"], read["path"]) == (
        "warning", "gap", 7, "/x",
    )  # fmt: skip
    assert read["message"] == text.encode(errors="backslashreplace").decode()


@pytest.mark.parametrize(
    ("end", "attempt", "level"),
    [
        (End.SUCCEEDED, 1, "DEBUG"),
        (End.SUCCEEDED, 2, "INFO"),
        (End.RETRY, 1, "WARNING"),
        (End.SNOOZED, 1, "INFO"),
        (End.FAILED, 1, "ERROR"),
    ],
)
def test_a_success_is_logged_by_default_only_after_a_failure(
    caplog: pytest.LogCaptureFixture, end: End, attempt: int, level: str
) -> None:
    task = Task(
        id="order-17", func="mail.send", key=b"", state=State.RUNNING, due=datetime.now(UTC),
        attempt=attempt,
    )  # fmt: skip
    ended = Ended(task=task, end=end, duration=0.1)
    with caplog.at_level(logging.DEBUG, logger="expirebridge"):
        log_event(ended)
    assert [record.levelname for record in caplog.records] == [level]
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="expirebridge"):
        log_event(ended)
    assert len(caplog.records) == (level != "DEBUG")


def test_what_is_given_back_for_one_reason_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_given_back", logs._Repeats())

    def give_back(func: str, reason: str) -> None:
        task = Task(
            id="order-17", func=func, key=b"", state=State.RUNNING, due=datetime.now(UTC), attempt=1
        )
        log_event(Ended(task=task, end=End.RELEASED, duration=0.0, reason=reason, brief=reason))

    for func in ("mail.send", "mail.fetch") * 500:
        give_back(func, "no handler")
    give_back("mail.send", "no key")
    assert [getattr(record, "fields", {})["func"] for record in caplog.records] == [
        "mail.send", "mail.fetch", "mail.send",
    ]  # fmt: skip
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    give_back("mail.send", "no handler")
    last = caplog.records[-1]
    assert "'no handler' (and 499 like it since the last such line)" in last.getMessage()
    assert getattr(last, "fields", {})["more"] == 499


def test_a_line_that_names_no_event_has_one() -> None:
    error = ValueError("x")
    info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("redis", logging.ERROR, "", 0, "what", (), info)
    read = json.loads(JsonLines().format(record))
    assert (read["event"], read["traceback"]) == ("other", "ValueError: x")
