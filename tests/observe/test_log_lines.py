"""The lines of the log: what a handler logs names its task, and no record can break the log."""

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from expirebridge import State, Task
from expirebridge.observe.logs import JsonLines, TaskFields, TextLines
from expirebridge.task.task import running_task

TASK = Task(
    id="order-17", func="mail.send", args=[], kwargs={}, key=b"", state=State.RUNNING,
    due=datetime.now(UTC), attempt=2,
)  # fmt: skip


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


class Broken(Exception):
    __str__ = Unprintable.__str__


@pytest.fixture(params=[JsonLines, TextLines])
def formatter(request: pytest.FixtureRequest) -> logging.Formatter:
    made: logging.Formatter = request.param()
    return made


@contextmanager
def written(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    """What the logger `shop` writes meanwhile."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(TaskFields())
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)


@contextmanager
def running() -> Iterator[None]:
    token = running_task.set(TASK)
    try:
        yield
    finally:
        running_task.reset(token)


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_names_the_task_that_runs() -> None:
    logger = logging.getLogger("shop")
    with written(JsonLines()) as stream:
        with running():
            logger.info("sent %d", 7)
        logger.info("idle")
    inside, outside = read(stream)
    assert datetime.fromisoformat(inside.pop("time")).tzinfo is not None
    assert inside == {
        "level": "info", "logger": "shop", "event": "other", "message": "sent 7",
        "task": "order-17", "func": "mail.send", "attempt": 2,
    }  # fmt: skip
    assert set(outside) == {"time", "level", "logger", "event", "message"}


def test_a_line_of_text_names_logger_and_task_and_the_traceback_follows() -> None:
    logger = logging.getLogger("shop")
    with written(TextLines()) as stream:
        with running():
            logger.warning("slow")
        logger.error("what", exc_info=KeyError("k"))
    slow, what, *trace = stream.getvalue().splitlines()
    assert slow.split(maxsplit=2)[2] == ("WARNING shop [mail.send order-17, attempt 2]: slow")
    assert what.split(maxsplit=2)[2] == "ERROR   shop: what"
    assert trace[-1] == "KeyError: 'k'"


@pytest.mark.parametrize(
    "call",
    [
        lambda log: log("%d of %d", 1),
        lambda log: log("%d", "x"),
        lambda log: log("%s", Unprintable()),
        lambda log: log(Unprintable()),
        lambda log: log("\udcff %s", "\udcff"),
        lambda log: log("x", extra={"a": Unprintable(), "b": 1 << 70, "\udcff": "\udcff"}),
        lambda log: log("x", exc_info=Broken()),
        lambda log: log("x", exc_info=True, stack_info=True),
        lambda log: log("x", extra={"fields": 7, "event": "succeeded", "task": "another"}),
    ],
)
def test_whatever_is_logged_one_line_is_written(
    call: Any, formatter: logging.Formatter, capfd: pytest.CaptureFixture[str]
) -> None:
    with written(formatter) as stream, running():
        call(logging.getLogger("shop").error)
    assert capfd.readouterr().err == ""  # logging itself found nothing wrong
    line = stream.getvalue()
    assert line
    if isinstance(formatter, JsonLines):
        [fields] = read(stream)
        assert (fields["task"], fields["event"], fields["logger"]) == ("order-17", "other", "shop")
    else:
        assert " ERROR   shop [mail.send order-17, attempt 2]: " in line


def test_what_cannot_be_formatted_says_where_it_was_logged() -> None:
    with written(JsonLines()) as stream:
        logging.getLogger("shop").info("%d", "x")
    [line] = read(stream)
    assert "TypeError" in line["message"]
    assert __file__ in line["message"]


def test_what_was_passed_as_extra_stands_apart() -> None:
    with written(JsonLines()) as stream:
        logging.getLogger("shop").info(
            "x", extra={"customer": 7, "event": "mine", "when": datetime(2031, 1, 1, tzinfo=UTC)}
        )
    [line] = read(stream)
    assert line["event"] == "other"
    assert line["extra"] == {
        "customer": 7, "event": "mine", "when": "2031-01-01T00:00:00+00:00"
    }  # fmt: skip


async def test_threads_name_the_task_if_they_run_in_the_handler_s_context() -> None:
    logger = logging.getLogger("shop")
    with written(JsonLines()) as stream, running():
        await asyncio.to_thread(logger.info, "of asyncio")
        thread = threading.Thread(target=logger.info, args=("its own",))
        thread.start()
        thread.join()
        await asyncio.create_task(_log(logger))
    assert [line.get("task") for line in read(stream)] == ["order-17", None, "order-17"]


async def _log(logger: logging.Logger) -> None:
    logger.info("a task of asyncio")


def test_a_program_s_own_format_can_name_the_task() -> None:
    defaults = {"task": "-", "func": "-"}
    formatter = logging.Formatter("%(name)s %(func)s %(task)s %(message)s", defaults=defaults)
    with written(formatter) as stream:
        logging.getLogger("shop").info("idle")
        with running():
            logging.getLogger("shop").info("sent")
    assert stream.getvalue().splitlines() == ["shop - - idle", "shop mail.send order-17 sent"]
