"""import --from with URLs, names and data that are wrong, and an import that broke.

What the libraries themselves write is imported in tests/importing.
"""

import json
import pickle
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from expirebridge import Bridge, InvalidSetting, InvalidTask, ServerError
from expirebridge.connection.clients import _PRODUCER_RETRIES
from expirebridge.embedded.server import EmbeddedServer, free_port
from expirebridge.handlers import Registry
from expirebridge.store.client import Store
from tests.kit.invoked import commands, end_due_tasks, invoke, run
from tests.kit.modules import forgotten
from tests.kit.proxy import Proxy
from tests.kit.servers import AnyServer

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "expirebridge" / "importing"
DUE = 1_956_528_000_000
"""In 2032."""


@pytest.fixture
def old(server: AnyServer) -> str:
    return f"redis://127.0.0.1:{server.port}/5"


@pytest.fixture
def handlers(tmp_path: Path) -> Iterator[Path]:
    """A folder for handlers, which are forgotten after the test."""
    folder = tmp_path / "handlers"
    folder.mkdir()
    with forgotten(tmp_path):
        yield folder


@pytest.fixture
def source(old: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(old) as client:
        yield client


def import_from(library: str, *words: str, url: str, code: int = 0) -> Any:
    return json.loads(invoke("import", "--from", library, *words, "--json", url=url, code=code))


def arq_job(source: redis.Redis, id: str, *, due: int = DUE, name: str = "mail.send") -> None:
    value: dict[str, Any] = {"t": None, "f": name, "a": (id,), "k": {}, "et": 1}
    source.set(f"arq:job:{id}", pickle.dumps(value))
    source.zadd("arq:queue", {id: due})


def message(**changed: Any) -> dict[str, Any]:
    headers = {"id": "a", "task": "mail.send", "eta": "2032-01-01T00:00:00+00:00", "secret": "s3cr"}
    body = [[1], {}, {}]
    made = {
        "content-type": "application/json",
        "headers": headers | changed.pop("headers", {}),
        "properties": {"body_encoding": "base64"},
        "body": b64encode(json.dumps(changed.pop("said", body)).encode()).decode(),
    }
    return made | changed


BAD_MESSAGES = [
    ("{", "it is not JSON"),
    ("7", "no message of Celery's protocol 2"),
    ('{"headers": {}}', "no message of Celery's protocol 2"),
    ("[" * 100_000, "it is not JSON"),
    (json.dumps(message(headers={"id": 7})), "no message of Celery's protocol 2"),
    (json.dumps(message(headers={"task": None})), "it does not name its task"),
    (json.dumps(message(headers={"eta": "soon"})), "its eta is not a time"),
    (json.dumps(message(headers={"eta": 7})), "its eta is not a time"),
    (json.dumps(message(headers={"eta": "9999-12-31T23:59:59-23:00"})), None),
    (json.dumps(message(headers={"expires": "soon"})), "its expires is not a time"),
    (json.dumps(message(body="%")), "its body is not base64"),
    (json.dumps(message(body=None)), "its body is missing"),
    (json.dumps(message(said={})), "its body is not [args, kwargs, embed]"),
    (json.dumps(message(said=[[2**70], {}, {}])), "its arguments do not fit a task"),
    (json.dumps(message(said=[[float("nan")], {}, {}])), "its arguments do not fit a task"),
    (json.dumps(message(said=[["x" * 70_000], {}, {}])), "its arguments do not fit a task"),
    (json.dumps(message(said=[[], {"*": 1}, {}])), "its arguments do not fit a task"),
    (json.dumps(message(said=[[{"__type__": "mine", "__value__": 1}], {}])), "a type of your own"),
    (json.dumps(message(said=[json.loads("[" * 900 + "]" * 900), {}, {}])), "its arguments "),
    (json.dumps(message(headers={"task": "\ud800"})), "\\ud800 is not a function here"),
    (json.dumps(message(headers={"id": "\ud800", "task": "?"})), "? is not a function here"),
    (json.dumps(message(headers={"task": "\x1b]0;x"})), "\\x1b]0;x is not a function here"),
    (json.dumps(message(headers={"task": "x" * 5000})), "x" * 100),
    (json.dumps(message(headers={"retries": 10**30})), "attempt: write a whole number"),
    (json.dumps(message(headers={"task": "s p a c e"})), "s p a c e is not a function here"),
]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(*bad, marks=() if number % 3 == 0 else pytest.mark.rest)
        for number, bad in enumerate(BAD_MESSAGES)
    ],
)
def test_a_message_that_is_none_is_refused_and_the_others_are_made(
    source: redis.Redis, old: str, url: str, raw: str, reason: str | None
) -> None:
    good = json.dumps(message(headers={"id": "good"}))
    source.sadd("_kombu.binding.celery", "celery\x06\x16\x06\x16celery")
    source.rpush("celery", raw, good)
    source.hset("unacked", mapping={"tag": json.dumps([json.loads(good), "", "celery"])})
    shown = invoke("import", "--from", "celery", old, "--json", url=url, code=2 if reason else 0)
    done = json.loads(shown)
    assert "s3cr" not in shown
    if reason is None:
        assert (done["created"], done["refused"]) == (2, 0)
        return
    assert (done["created"], done["kept"], done["refused"]) == (1, 1, 1)
    assert done["reasons"][0]["reason"].startswith(reason)


def test_broken_data_of_each_library_is_counted_with_its_id(
    source: redis.Redis, old: str, url: str
) -> None:
    source.hset("bull:mail:meta", "version", "x")
    source.zadd("bull:mail:delayed", dict.fromkeys(["gone", "text", "bad", "opts"], DUE * 4096))
    source.zadd("bull:mail:delayed", {"ever": float("inf")})
    source.zadd("bull:mail:delayed", {b"\xff": DUE * 4096})
    source.set("bull:mail:text", "x")
    source.hset("bull:mail:bad", mapping={"name": "send", "data": "{"})
    source.hset("bull:mail:opts", mapping={"name": "send", "data": "1", "opts": "[]"})
    source.hset("bull:mail:ever", mapping={"name": "send", "data": "1"})
    long = '{"attempts": 3, "backoff": {"type": "fixed", "delay": 1%s}}' % ("0" * 400)
    source.zadd("bull:mail:delayed", {"long": DUE * 4096})
    source.hset("bull:mail:long", mapping={"name": "send", "data": "1", "opts": long})
    done = import_from("bullmq", old, url=url, code=2)
    assert done["created"] == 1
    assert {(id, one["reason"]) for one in done["reasons"] for id in one["ids"]} == {
        ("mail:gone", "its hash is missing, or has no name"),
        ("mail:\\xff", "its hash is missing, or has no name"),
        ("mail:text", "its key does not hold a hash"),
        ("mail:bad", "its data is not JSON"),
        ("mail:opts", "its opts is not an object"),
        ("mail:ever", "its score is not a time"),
    }
    arq_job(source, "good")
    source.zadd("arq:queue", {"gone": DUE})
    source.set("arq:job:seven", pickle.dumps(7))
    source.set("arq:job:huge", pickle.dumps({"f": "mail.send", "a": (), "k": {}, "et": 10**5000}))
    source.zadd("arq:queue", {"seven": DUE, "huge": DUE, "aborted": 1})
    source.zadd("arq:abort", {"aborted": 1})
    arq_job(source, "runs")
    source.set("arq:in-progress:runs", "1")
    done = import_from("arq", old, url=url, code=2)
    assert done["created"] == 1
    assert {(id, one["reason"]) for one in done["reasons"] for id in one["ids"]} == {
        ("gone", "expired: their arq:job:<id> is gone"),
        ("aborted", "aborted"),
        ("runs", "running; stop the workers, and let them finish"),
        ("seven", "what is pickled is not a job of arq"),
        ("huge", "what is pickled is not a job of arq"),
    }


def test_names_are_mapped_and_the_nearest_is_named(
    source: redis.Redis, old: str, url: str, handlers: Path
) -> None:
    (handlers / "mail.py").write_text("def send(user): ...\n")
    for id, name in (("a", "send"), ("b", "mail.snd"), ("c", "mail.send"), ("d", "old.jobs.run")):
        arq_job(source, id, name=name)
    words = ("import", "--from", "arq", old, "--dry-run", "--json")
    blind = run(*words, url=url)
    assert blind.returncode == 2
    reasons = {one["reason"] for one in json.loads(blind.stdout)["reasons"]}
    assert reasons == {
        "send is not a function here: --map send=module.send",
        "old.jobs.run is not a function here: --map old.jobs.run=jobs.run",
    }
    checked = run(
        *words, "--tasks", handlers, "--map", "old.jobs.run=mail.send", "--map",
        "x=mail.send", url=url,
    )  # fmt: skip
    done = json.loads(checked.stdout)
    assert done["functions"]["mail.send"]["tasks"] == 2
    assert {one["reason"] for one in done["reasons"]} == {
        "send is not a function here: --map send=mail.send",
        "there is no handler mail.snd: --map mail.snd=mail.send",
    }
    assert checked.stderr == "expirebridge: no job is named x, as --map says\n"


def test_a_job_whose_arguments_the_handler_does_not_take_is_refused(
    source: redis.Redis, old: str, url: str, handlers: Path
) -> None:
    (handlers / "mail.py").write_text("def send(user, *, subject): ...\n")
    for id, args, kwargs in (
        ("fits", (7,), {"subject": "s3cret"}),
        ("few", (), {"subject": "s3cret"}),
        ("more", (7, "s3cret"), {"subject": "s3cret"}),
        ("other", (7,), {"topic": "s3cret"}),
    ):
        value = {"t": None, "f": "mail.send", "a": args, "k": kwargs, "et": 1}
        source.set(f"arq:job:{id}", pickle.dumps(value))
        source.zadd("arq:queue", {id: DUE})
    words = ("import", "--from", "arq", old, "--dry-run", "--json", "--tasks")
    checked = run(*words, handlers, url=url)
    assert checked.returncode == 2
    done = json.loads(checked.stdout)
    assert (done["would_create"], done["refused"]) == (1, 3)
    assert {one["reason"] for one in done["reasons"]} == {
        "mail.send(user, *, subject): missing a required argument: 'user'",
        "mail.send(user, *, subject): too many positional arguments",
        "mail.send(user, *, subject): missing a required argument: 'subject'",
    }
    assert "s3cret" not in checked.stdout


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--map", "send"], "--map send: write old=new"),
        (["--map", "a=b.c", "--map", "a=b.d"], "a is mapped to b.c already"),
        (["--map", "a=b"], "func='b': write module.function"),
        (["--timezone", "Mars"], "--timezone Mars: write a zone"),
        (["--source-prefix", "x"], "--source-prefix: arq has none"),
        (["--queue", "other"], "there is no key other: the queue is empty"),
        (["--queue", "arq:job:a"], "arq:job:a holds a string, not a zset"),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    source: redis.Redis, old: str, url: str, bridge: Bridge, words: list[str], wrong: str
) -> None:
    arq_job(source, "a")
    with pytest.raises((InvalidSetting, InvalidTask)) as refused:
        invoke("import", "--from", "arq", old, *words, url=url)
    assert wrong in str(refused.value)
    assert bridge.count().pending == 0


@pytest.mark.parametrize("words", [["--dry-run"], ["--map", "a=b.c"], ["--source-prefix", "x"]])
def test_a_file_has_none_of_these_options(url: str, words: list[str]) -> None:
    with pytest.raises(InvalidSetting, match=f"{words[0]}: it requires --from"):
        invoke("import", "tasks.ndjson", *words, url=url)


@pytest.mark.parametrize("library", ["bullmq", "celery", "arq"])
def test_a_source_that_cannot_be_is_refused(
    library: str, server: AnyServer, url: str, old: str
) -> None:
    def refused(source: str) -> str:
        with pytest.raises((InvalidSetting, ServerError)) as caught:
            invoke("import", "--from", library, source, url=url)
        return str(caught.value)

    assert "is also the database of the tasks" in refused(url)
    assert "is also the database of the tasks" in refused(url.replace("127.0.0.1", "localhost"))
    assert "begin it with one of redis://" in refused("amqp://guest:s3cr@old//")
    said = refused("redis://ann:s3cr@127.0.0.1:1/0")
    assert said.startswith("redis://ann:***@127.0.0.1:1/0, the source: no answer from the server")
    assert "s3cr" not in said
    # Another database, where nothing of the library is.
    assert "database" in refused(old)


def test_a_broken_import_goes_on_and_what_may_have_run_is_left(
    server: AnyServer, source: redis.Redis, old: str, url: str, bridge: Bridge, store: Store
) -> None:
    for n in range(3):
        arq_job(source, f"overdue-{n}", due=10)
    assert import_from("arq", old, url=url)["created"] == 3
    for n in range(200):
        arq_job(source, f"later-{n}")
    with Proxy(server.port) as proxy:
        by_proxy = proxy.url[:-1] + "1"
        proxy.cut_reply_of("make", times=_PRODUCER_RETRIES + 1, holding=b"arq-later-150:")
        broken = run("import", "--from", "arq", old, "--json", url=by_proxy)
        assert broken.returncode == 1
        assert json.loads(broken.stdout)["created"] < 200
    # What was overdue runs, and is forgotten before the next import.
    assert sorted(end_due_tasks(store, "succeeded", "")) == [f"arq-overdue-{n}:1" for n in range(3)]
    for n in range(3):
        store.client.delete(f"expirebridge:task:arq-overdue-{n}:1")
    again = import_from("arq", old, url=url)
    assert again["created"] + again["kept"] == 200
    [left] = again["reasons"]
    assert (left["jobs"], left["end"]) == (3, "left")
    assert left["reason"].startswith("overdue, and may have run since the import that began at 20")
    assert import_from("arq", old, "--overdue", url=url)["created"] == 3
    assert bridge.count().pending == 203


def test_a_node_of_a_cluster_that_has_not_the_keys_is_refused(url: str) -> None:
    options = {"cluster-enabled": "yes", "cluster-port": str(free_port())}
    with EmbeddedServer(options=options) as node:
        refused = run("import", "--from", "arq", f"redis://127.0.0.1:{node.port}/0", url=url)
    assert refused.returncode == 2
    warned, said = refused.stderr.splitlines()
    assert warned.endswith("is a node of a cluster: import from each of its primaries")
    assert "it is a node of a cluster, and not all of these keys are on it" in said


PAGE = (ROOT / "docs" / "how-to" / "import.md").read_text()
OTHERS = (ROOT / "docs" / "reference" / "other-libraries.md").read_text()


def test_the_page_names_every_option_and_its_commands_can_be_typed() -> None:
    [command] = [command for path, command in commands() if path == "import"]
    options = {option for parameter in command.params for option in parameter.opts}
    others = {"source", "--from", "--url", "--prefix", "--json"}
    shown = set(re.findall(r"^- `(--[\w-]+)", PAGE, re.MULTILINE))
    assert shown == options - others
    calls = re.findall(r"^\$ expirebridge import (--from .*)$", PAGE, re.MULTILINE)
    assert len(calls) == 6
    for call in calls:
        command.make_context("import", shlex.split(call))


def test_the_reasons_that_the_page_shows_are_those_of_the_report() -> None:
    sources = "".join(path.read_text() for path in SOURCES.glob("*.py"))
    shown = re.findall(r"^(?:left|refused|changed) \d+: ([^(\n]*?)(?: \(.*)?$", PAGE, re.MULTILINE)
    assert len(shown) == 3
    for reason in shown:
        assert reason.partition(" chain")[0].rpartition("it has")[2].strip() in sources
    assert "nothing here would run what follows it" in sources


def test_the_handlers_that_the_page_shows_are_handlers(tmp_path: Path) -> None:
    afters = re.findall(r"```python\n# after: tasks/mail.py\n(.*?)```", OTHERS, re.DOTALL)
    assert len(afters) == 3
    for number, text in enumerate(afters):
        folder = tmp_path / f"page{number}"
        folder.mkdir()
        (folder / "mail.py").write_text(text)
        assert [handler.name for handler in Registry.load(folder)] == ["mail.send"]
