"""What becomes of Django's tasks: their results, errors and signals."""

import base64
import os
import signal

import pytest

from expirebridge import Bridge
from tests.kit.django_project import DjangoProject
from tests.kit.django_tasks import API, asked


def test_a_result_says_what_became_of_a_task(shop: DjangoProject) -> None:
    with shop.listening("--processes", "1"):
        program = """
first = add.enqueue(1, b=2)
assert (first.status, first.attempts, first.started_at) == ("READY", 0, None)
typed = convert.enqueue(uuid.UUID(int=7), day=datetime.date(2030, 1, 1))
done = waited(first, describe.enqueue("a"), apart.enqueue(), give.enqueue("most"), typed)
for result in done:
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.started_at == result.last_attempted_at
    assert result == default_task_backend.get_result(result.id)
    assert result.task.get_result(result.id).task == result.task
print(json.dumps([
    [result.status, result.return_value, result.args, result.kwargs, result.errors,
     result.worker_ids, result.id] for result in done
]))
"""
        added, described, apart, most, typed = asked(shop, program)
    assert added[:5] == ["SUCCESSFUL", 3, [1], {"b": 2}, []]
    [worker] = added[5]
    with Bridge(shop.url) as bridge:
        task = bridge.get(added[6])
        assert task is not None
        assert task.listener == worker
    assert described[1] == [1, described[6], ["a"], "RUNNING", [worker]]
    assert apart[1]["pair"] == [1, 2]
    assert len(most[1]) == 4094
    id = "00000000-0000-0000-0000-000000000007"
    assert (typed[1], typed[3]) == (["UUID", 2030, [id]], {"day": "2030-01-01"})
    assert described[5] == apart[5] == most[5] == [worker]


@pytest.mark.parametrize(
    "sealed", [False, pytest.param(True, marks=pytest.mark.rest)], ids=["plain", "sealed"]
)
def test_each_error_has_its_class_and_the_last_one_its_traceback(
    shop: DjangoProject, *, sealed: bool
) -> None:
    if sealed:
        shop.expirebridge["KEYS"] = f"one:{base64.b64encode(bytes(64)).decode()}"
    with shop.listening("--processes", "1"):
        program = """
done = waited(
    decline.enqueue("no\\nfunds"), third_time.enqueue(), discard.enqueue(), hang.enqueue(),
    together.enqueue(),
)
print(json.dumps([
    [result.status, result._return_value, result.attempts, errors(result)] for result in done
]))
from shop.tasks import Declined
assert done[0].errors[0].exception_class is Declined
assert issubclass(done[2].errors[0].exception_class, Exception)
for result in done[2:4]:
    try: result.return_value
    except ValueError: pass
    else: raise AssertionError
"""
        declined, third, discarded, hung, both = asked(shop, program)
    [[path, trace]] = declined[3]
    assert (declined[0], declined[2], path) == ("FAILED", 1, "shop.tasks.Declined")
    assert trace.startswith("Traceback")
    assert trace.endswith("shop.tasks.Declined: no\nfunds\n")
    assert "/expirebridge/" not in trace.replace(str(shop.folder), "")
    assert third[:3] == ["SUCCESSFUL", ["shop.tasks.Declined"] * 2, 3]
    assert third[3] == [
        ["shop.tasks.Declined", f"shop.tasks.Declined: attempt {number}\n"] for number in (1, 2)
    ]
    [[path, trace]] = discarded[3]
    assert (path.rpartition(".")[2], trace) == ("AttemptFailed", "no use\n")
    [[path, trace]] = hung[3]
    assert (path.rpartition(".")[2], trace) == ("AttemptFailed", "timed out after 0.2 s\n")
    [[path, trace]] = both[3]
    assert path == "builtins.ExceptionGroup"
    assert "shop.tasks.Declined: a" in trace
    assert "] builtins" not in trace


def test_a_result_that_is_not_kept_fails_the_task(shop: DjangoProject) -> None:
    with shop.listening():
        program = """
done = waited(*(give.enqueue(kind) for kind in ("large", "function", "nan")))
assert {result.status for result in done} == {"FAILED"}
print(json.dumps([error for result in done for error in errors(result)]))
"""
        large, function, number = asked(shop, program)
    assert large[0] == "builtins.ValueError"
    assert "4,097 bytes of JSON" in large[1]
    assert function[0] == "builtins.TypeError"
    assert "Unsupported type" in function[1]
    assert number[0] == "builtins.ValueError"
    assert "NaN" in number[1]


def test_signals_tell_of_each_end(shop: DjangoProject) -> None:
    shop.write(
        "shop/models.py",
        f"""
from {API}.signals import task_enqueued, task_finished, task_started
from shop.tasks import _report

def tell(word):
    def receive(sender, task_result, **_):
        _report(f"{{word}} {{task_result.task.name}} {{task_result.status}} {{sender.__name__}}")
        raise ValueError("of a receiver")
    return receive

started, finished = tell("started"), tell("finished")
task_started.connect(started)
task_finished.connect(finished)
""",
    )
    with shop.listening("--processes", "1"):
        program = """
done = waited(add.enqueue(1, 2), decline.enqueue("no"), third_time.enqueue(), discard.enqueue(),
              hang.enqueue(), describe.enqueue())
print(json.dumps([result.status for result in done]))
"""
        statuses = asked(shop, program)
        told = sorted(shop.report() for _ in range(14))
    assert statuses == ["SUCCESSFUL", "FAILED", "SUCCESSFUL", "FAILED", "FAILED", "SUCCESSFUL"]
    ends = {
        "add": "SUCCESSFUL", "decline": "FAILED", "third_time": "SUCCESSFUL", "discard": "FAILED",
        "hang": "FAILED", "describe": "SUCCESSFUL",
    }  # fmt: skip
    assert told == sorted(
        [f"started {name} RUNNING ExpirebridgeBackend" for name in [*ends, *["third_time"] * 2]]
        + [f"finished {name} {status} ExpirebridgeBackend" for name, status in ends.items()]
    )


def test_a_task_that_fails_since_its_listeners_die_is_told_of(shop: DjangoProject) -> None:
    program = f"""
import asyncio, logging
from {API}.signals import task_finished
logging.disable()
from expirebridge import Bridge
from expirebridge.contrib.django.task_functions import hear
from expirebridge.hooks import Lapsed
told = []
def receive(task_result, **_):
    told.append([task_result.id, task_result.status])
task_finished.connect(receive)
async def main():
    for id in (result.id, "other", "gone"):
        hear(Lapsed(id=id, failed=True))
result = add.enqueue(1, 2)
with Bridge() as bridge:
    bridge.make_task("a.b", [], 60, id="other")
    bridge.cancel(result.id)
asyncio.run(main())
assert told == [[result.id, "FAILED"]], told
print("null")
"""
    assert asked(shop, program) is None


@pytest.mark.rest
def test_a_task_whose_listener_is_killed_runs_again(shop: DjangoProject) -> None:
    with shop.listening("--lease", "1"):
        pass  # so that the log begins
    with shop.listening("--lease", "1") as listener:
        id = asked(shop, "print(json.dumps(stay.enqueue().id))")
        assert shop.report() == "stay"
        os.kill(listener.pid, signal.SIGKILL)
        listener.wait()
    status = f"print(json.dumps(default_task_backend.get_result({id!r}).status))"
    assert asked(shop, status) == "RUNNING"
    with shop.listening("--lease", "1"):
        program = f"""
[result] = waited(default_task_backend.get_result({id!r}))
print(json.dumps([result.return_value, result.worker_ids, errors(result)]))
"""
        value, workers, errors = asked(shop, program)
    assert value == "done"
    assert workers[0] == "unknown"
    assert len(workers) == 2
    assert errors[0][1] == "its listener died, or fell silent\n"
