"""import --from rabbitmq: the lines that the script of the page writes, and those that are wrong.

The lines are like those of RabbitMQ 3.10 with the plugin 3.10.2.
"""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, InvalidSetting
from expirebridge.task.task import from_ms
from tests.kit.invoked import invoke

DUE = 1_956_528_000_000
"""In 2032."""
NUMBERS = iter(range(1_000_000))


def message(body: object = None, **changed: Any) -> dict[str, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {
        "id": f"{next(NUMBERS):032X}", "due": DUE, "vhost": "/", "exchange": "orders",
        "routing_key": "confirm", "headers": {"x-delay": 3_600_000}, "content_type": None,
        "content_encoding": None, "body": b64encode(raw).decode(), **changed,
    }  # fmt: skip


def of_celery(*args: Any, **headers: Any) -> dict[str, Any]:
    known = {
        "task": "mail.tasks.send", "id": "7c9e", "eta": None, "expires": None, "retries": 2,
        "timelimit": [None, None], "group": None, "x-delay": 3_600_000,
    }  # fmt: skip
    return message([args, {}, {"chain": None}], exchange="celery", headers=known | headers)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "delayed.ndjson"


def write(file: Path, *messages: dict[str, Any]) -> str:
    """Write them as the script does, and return the file's name."""
    file.write_text("".join(json.dumps(one) + "\n" for one in messages) + f"{len(messages)}\n")
    return str(file)


def import_from(source: str, *words: str, url: str, code: int = 0) -> Any:
    words = ("import", "--from", "rabbitmq", source, *words, "--json")
    return json.loads(invoke(*words, url=url, code=code))


def test_each_message_becomes_a_task_at_its_time(url: str, bridge: Bridge, file: Path) -> None:
    twice = {"order": 18}
    first = message({"order": 17, "who": "é"}, due=DUE + 1)
    source = write(
        file, first, message(twice), message(twice), message([1], routing_key="", exchange="polls"),
        message(7, headers={"x-delay": 1, "tenant": "a"}),
    )  # fmt: skip
    mapped = ("--map", "polls=polls.run")
    dry = import_from(source, *mapped, "--dry-run", url=url)
    assert (dry["would_create"], bridge.count().pending) == (5, 0)
    done = import_from(source, *mapped, url=url)
    assert (done["created"], done["changes"]) == (5, {"headers are ignored": 1})
    tasks = bridge.list().tasks
    assert [task.func for task in tasks].count("orders.confirm") == 4
    task = bridge.get(f"rabbitmq-{first['id']}")
    assert task is not None
    assert (task.args, task.due) == ([{"order": 17, "who": "é"}], from_ms(DUE + 1))
    assert [task.args for task in tasks].count([twice]) == 2
    again = import_from(source, *mapped, url=url)
    assert (again["created"], again["kept"]) == (0, 5)


def test_a_task_of_celery_is_read_as_one(url: str, bridge: Bridge, file: Path) -> None:
    source = write(
        file,
        of_celery(42, id="plain"),
        of_celery(43, id="later", eta="2033-01-01T00:00:00"),
        of_celery(44, id="sooner", eta="2031-01-01T00:00:00+00:00"),
        of_celery(45, id="expired", expires="2031-01-01T00:00:00+00:00"),
    )
    done = import_from(source, "--map", "mail.tasks.send=mail.send", url=url)
    assert (done["created"], done["left"]) == (3, 1)
    due = {task.id: (task.due, task.args, task.attempt) for task in bridge.list().tasks}
    assert due["celery-plain"] == (from_ms(DUE), [42], 2)
    assert due["celery-later"][0] == from_ms(1_988_150_400_000)
    assert due["celery-sooner"][0] == from_ms(DUE)


BAD = [
    (message(b"\xff\x00"), "its body is not JSON"),
    (message(b"\x80\x04K\x07.", content_type="application/x-python-serialize"),
     "its body, application/x-python-serialize, is not JSON"),
    (message(7) | {"body": "%"}, "its body is not base64"),
    (message(7, due="soon"), "it is not a message as the script writes it"),
    (message(7, headers=None), "it is not a message as the script writes it"),
    ({}, "it is not a message as the script writes it"),
    (message(7, routing_key="odd é"), "orders.odd é is not a function here"),
    (message("x" * 70_000), "its arguments do not fit a task"),
    (of_celery(id="chained", task="a.b") | {"body": b64encode(b"{}").decode()},
     "its body is not [args, kwargs, embed]"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "reason"), BAD)
def test_a_message_that_is_none_is_refused_and_the_others_are_made(
    url: str, file: Path, bad: dict[str, Any], reason: str
) -> None:
    done = import_from(write(file, bad, message(1)), url=url, code=2)
    assert (done["created"], done["refused"]) == (1, 1)
    assert done["reasons"][0]["reason"].startswith(reason)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"id": "a"}\n', "it does not end with the number of its lines"),
        ('{"id": "a"}\n2\n', "line 2: 1 line with objects is before it"),
        ('{"id": "a"}\nError: unable to connect to node\n', "line 2: it is not JSON"),
        ('{"id": "a"}\n1\n{"id": "b"}\n', "it does not end with the number of its lines"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(
    url: str, bridge: Bridge, file: Path, text: str, wrong: str
) -> None:
    file.write_text(text)
    with pytest.raises(InvalidSetting, match=wrong):
        import_from(str(file), url=url)
    assert bridge.count().pending == 0


def test_the_files_of_several_nodes_can_stand_in_one(url: str, file: Path) -> None:
    write(file, message(1), message(2))
    first = file.read_text()
    write(file, message(3))
    file.write_text(first + file.read_text() + "0\n")
    assert import_from(str(file), url=url)["created"] == 3


def test_an_empty_table_is_no_error(url: str, file: Path) -> None:
    assert import_from(write(file), url=url)["created"] == 0


@pytest.mark.parametrize(
    ("library", "words", "wrong"),
    [
        ("rabbitmq", ["--queue", "a"], "--queue: it is not for rabbitmq"),
        ("apscheduler", ["--waiting"], "--waiting: it is not for apscheduler"),
        ("rabbitmq", ["--disabled"], "--disabled: it is for apscheduler and django-celery-beat"),
        ("rabbitmq", [], "nothing.here: it cannot be read: No such file"),
        ("django-celery-beat", [], "the source's URL cannot be read"),
    ],
)
def test_a_source_or_an_option_that_cannot_be_is_refused(
    url: str, library: str, words: list[str], wrong: str
) -> None:
    with pytest.raises(InvalidSetting, match=wrong):
        invoke("import", "--from", library, "nothing.here", *words, url=url)


def test_a_database_without_the_tables_is_refused(url: str, tmp_path: Path) -> None:
    def refused(source: str) -> str:
        with pytest.raises(InvalidSetting) as caught:
            invoke("import", "--from", "apscheduler", source, url=url)
        return str(caught.value)

    missing = tmp_path / "missing.db"
    assert refused(f"sqlite:///{missing}") == f"there is no file {missing}"
    assert not missing.exists()
    missing.touch()
    assert refused(f"sqlite:///{missing}").startswith("there is no table apscheduler_jobs in ")
    said = refused("postgresql+psycopg://ann:s3cr@127.0.0.1:1/jobs")
    assert said.startswith("127.0.0.1:1/jobs, the source: ")
    assert "s3cr" not in said
    assert "the source's URL cannot be read" in refused("postgresql+nothing://localhost/jobs")
