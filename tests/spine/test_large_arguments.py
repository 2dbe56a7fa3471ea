"""Arguments of more than 64 KiB, which a codec keeps elsewhere."""

import asyncio
import threading
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from expirebridge import (
    AsyncBridge,
    Bridge,
    Codec,
    Discard,
    InvalidSetting,
    InvalidTask,
    Limit,
    State,
    Task,
    handler,
)
from expirebridge.fleet.comparing import compare, scope_of
from expirebridge.fleet.compatibility import BlindSpot, Verdict
from expirebridge.hooks import End, Started
from expirebridge.limits.values import lane_value
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from tests.kit.colours import asking_one
from tests.kit.invoked import invoke, invoke_json
from tests.kit.objects import ObjectStore, object_store
from tests.kit.patience import PATIENCE
from tests.kit.steps import found
from tests.kit.witness import Witness, listening, registry_of

pytestmark = pytest.mark.servers("oldest")

EXAMPLE = Path(__file__).parents[2] / "examples" / "large_arguments.py"
example = run_path(str(EXAMPLE))
FileCodec, ObjectCodec = example["FileCodec"], example["ObjectCodec"]
LARGE = "sun " * 20_000


class Zlib:
    """Compresses; remembers in which thread it did so."""

    def __init__(self) -> None:
        self.threads: set[str] = set()

    def encode(self, args: bytes, id: str) -> bytes:  # noqa: ARG002
        self.threads.add(threading.current_thread().name)
        return zlib.compress(args)

    def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
        self.threads.add(threading.current_thread().name)
        return zlib.decompress(encoded)


zlib_codec = Zlib()


class Refusing(Zlib):
    """Cannot decode: each call raises the next error."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def decode(self, encoded: bytes, id: str) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        return super().decode(encoded, id)


@pytest.fixture
def objects() -> Iterator[ObjectStore]:
    with object_store() as objects:
        yield objects


async def measure(text: str, *, times: int = 1) -> int:
    return len(text) * times


def measure_plain(text: str) -> int:
    return len(text)


async def run_one(
    settings: Settings, producing: Codec, listening_with: Codec | None, end: End, **handlers: Any
) -> Task:
    """Make one large task, and return it once an attempt has ended so."""
    witness = Witness()
    [name] = handlers
    bridge = AsyncBridge(settings.url, codec=producing)
    async with (
        asking_one(bridge),
        listening(replace(settings, codec=listening_with), witness, **handlers),
    ):
        task = await bridge.make_task(f"test.{name}", [LARGE], 0)
        await witness.until_ended(1, end)
        return await found(bridge, task)


@pytest.mark.parametrize("function", [measure, measure_plain])
async def test_what_a_codec_encoded_arrives_in_the_handler(
    settings: Settings, function: Any
) -> None:
    codec = Zlib()
    task = await run_one(settings, codec, codec, End.SUCCEEDED, measure=function)
    assert task.result == len(LARGE)
    assert task.key.endswith(b":?test.measure?@")
    assert threading.current_thread().name not in codec.threads  # a store may take its time


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
@pytest.mark.parametrize("partitions", [1, 4])
async def test_both_colours_encode_one_and_many(
    settings: Settings, bridge: Bridge, colour: type[Bridge | AsyncBridge], partitions: int
) -> None:
    codec, witness = Zlib(), Witness()
    bridge.create_partitions(partitions)
    async with (
        asking_one(colour(settings.url, codec=codec)) as ask,
        listening(replace(settings, codec=codec), witness, measure=measure),
    ):
        tasks = [
            {"func": "test.measure", "args": [LARGE], "delay": 0, "kwargs": {"times": times}}
            for times in (2, 3)
        ]
        made = await ask("make_tasks", [*tasks, {"func": "test.measure", "args": [""], "delay": 0}])
        made.append(await ask("make_task", "test.measure", [LARGE], 0))
        await witness.until_ended(4, End.SUCCEEDED)
        results = [(await ask("get", task.id)).result for task in made]
    assert results == [2 * len(LARGE), 3 * len(LARGE), 0, len(LARGE)]


async def test_what_fits_into_a_record_is_not_encoded(settings: Settings) -> None:
    codec = Refusing(AssertionError())
    async with AsyncBridge(settings.url, codec=codec) as bridge:
        for text in ("", "x" * 60_000):
            task = await bridge.make_task("test.measure", [text], "1h")
            assert (await found(bridge, task)).args == [text]
    assert not codec.threads


async def test_encoded_arguments_are_shown_by_their_size(settings: Settings) -> None:
    async with AsyncBridge(settings.url, codec=zlib_codec) as bridge:
        task = await bridge.make_task("test.measure", [LARGE], "1h")
        size = len(zlib.compress(b'["' + LARGE.encode() + b'"]'))
        assert task.args == [f"(encoded, {size:,} bytes)"]
        assert (await found(bridge, task)).args == task.args


@pytest.mark.parametrize("colour", [Bridge, AsyncBridge])
async def test_an_edit_encodes_too(settings: Settings, colour: type[Bridge | AsyncBridge]) -> None:
    witness, codec = Witness(), Zlib()
    async with (
        asking_one(colour(settings.url, codec=codec)) as ask,
        listening(replace(settings, codec=codec), witness, measure=measure),
    ):
        task = await ask("make_task", "test.measure", ["x"], "1h")
        await ask("edit", task.id, [LARGE])
        assert str((await ask("get", task.id)).args).startswith("['(encoded, ")
        with pytest.raises(InvalidTask, match="cannot be edited here: a codec encoded them"):
            await ask("edit", task.id, [LARGE])
        await ask("run_now", task.id)
        await witness.until_ended(1, End.SUCCEEDED)
        assert (await ask("get", task.id)).result == len(LARGE)


async def test_a_task_waits_for_a_listener_with_a_codec(settings: Settings) -> None:
    task = await run_one(settings, Zlib(), None, End.RELEASED, measure=measure)
    assert task.state is State.PENDING
    assert task.attempt == 0
    assert task.error == (
        "its arguments are encoded, and its listener has no codec (EXPIREBRIDGE_CODEC); tried "
        "again every 15 s, for a day"
    )


async def test_a_store_that_is_away_delays_a_task(settings: Settings, objects: ObjectStore) -> None:
    witness, codec = Witness(), ObjectCodec(objects.bucket)

    @handler(retry=[0.01, "1h"])
    async def measure(text: str) -> int:
        return len(text)

    async with (
        AsyncBridge(settings.url, codec=codec) as bridge,
        listening(replace(settings, codec=codec), witness, measure=measure),
    ):
        objects.away = True
        with pytest.raises(OSError, match="503"):
            await bridge.make_task("test.measure", [LARGE], 0)
        assert (await bridge.count()).unfinished == 0
        objects.away = False
        task = await bridge.make_task("test.measure", [LARGE], 0.05)
        objects.away = True
        await witness.until_ended(2, End.RETRY)
        away = await found(bridge, task)
        objects.away = False
        await bridge.run_now(task.id)
        await witness.until_ended(1, End.SUCCEEDED)
        assert (await found(bridge, task)).result == len(LARGE)
    assert away.error is not None
    assert away.error.endswith(
        "\nits codec did not decode its arguments: HTTPError: HTTP Error 503: Service Unavailable"
    )
    assert [entry.what for entry in away.history] == ["created", "retry", "retry"]


@pytest.mark.parametrize(
    ("error", "end"), [(Discard("gone"), End.FAILED), (KeyError("x"), End.RETRY)]
)
async def test_an_error_of_the_codec_is_one_of_the_attempt(
    settings: Settings, error: Exception, end: End
) -> None:
    task = await run_one(settings, Zlib(), Refusing(error), end, measure=measure)
    assert task.error is not None
    assert str(error) in task.error
    assert task.attempt == 1


async def test_what_is_no_arguments_fails(settings: Settings) -> None:
    class Wrong(Zlib):
        def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
            return b"17"

    task = await run_one(settings, Zlib(), Wrong(), End.FAILED, measure=measure)
    assert task.error == (
        "its codec decoded no arguments: the arguments are neither an array nor an object"
    )


async def test_a_codec_that_hangs_has_the_time_of_the_handler(settings: Settings) -> None:
    gate = threading.Event()

    class Hanging(Zlib):
        def decode(self, encoded: bytes, id: str) -> bytes:
            gate.wait(PATIENCE)
            return super().decode(encoded, id)

    @handler(timeout=0.05)
    async def measure(text: str) -> int:
        return len(text)

    try:
        task = await run_one(settings, Zlib(), Hanging(), End.RETRY, measure=measure)
    finally:
        gate.set()
    assert task.error == "its codec did not decode its arguments in 0.05 s"


async def test_a_listener_that_stops_waits_for_no_codec(settings: Settings) -> None:
    witness, gate, reached = Witness(), threading.Event(), threading.Event()

    class Hanging(Zlib):
        def decode(self, encoded: bytes, id: str) -> bytes:
            reached.set()
            gate.wait(PATIENCE)
            return super().decode(encoded, id)

    try:
        async with AsyncBridge(settings.url, codec=Zlib()) as bridge:
            async with listening(
                replace(settings, codec=Hanging(), grace=5), witness, measure=measure_plain
            ):
                task = await bridge.make_task("test.measure", [LARGE], 0)
                assert await asyncio.to_thread(reached.wait, PATIENCE)
            read = await found(bridge, task)
    finally:
        gate.set()
    assert (read.state, read.attempt, read.error) == (State.PENDING, 0, "its listener stopped")


async def test_extend_finds_the_same_call(settings: Settings, tmp_path: Path) -> None:
    async with AsyncBridge(settings.url, codec=FileCodec(tmp_path)) as bridge:
        given: dict[str, Any] = {"id": "a", "if_exists": "extend"}
        await bridge.make_task("test.measure", [LARGE], "1h", **given)
        task = await bridge.make_task("test.measure", [LARGE], "2h", **given)
        assert task.outcome == "extended"
        with pytest.raises(Exception, match="is pending, but is"):
            await bridge.make_task("test.measure", [LARGE, 2], "2h", **given)


async def test_files_and_objects_keep_arguments(
    settings: Settings, objects: ObjectStore, tmp_path: Path
) -> None:
    for codec in (FileCodec(tmp_path / "args"), ObjectCodec(objects.bucket)):
        task = await run_one(settings, codec, codec, End.SUCCEEDED, measure=measure)
        assert task.result == len(LARGE)
    [path] = (tmp_path / "args").iterdir()
    [stored] = objects.objects.values()
    assert path.read_bytes() == stored == b'["' + LARGE.encode() + b'"]'
    # Once they are gone, so is the task.
    task = await run_one(settings, ObjectCodec(objects.bucket), None, End.RELEASED, measure=measure)
    objects.objects.clear()
    witness, codec = Witness(), ObjectCodec(objects.bucket)
    async with (
        AsyncBridge(settings.url) as bridge,
        listening(replace(settings, codec=codec), witness, measure=measure),
    ):
        await bridge.run_now(task.id)
        await witness.until_ended(1, End.FAILED)
        assert (await found(bridge, task)).error == "the object with its arguments is gone"


async def test_each_value_of_a_limit_has_its_lane(settings: Settings) -> None:
    witness, gate = Witness(), asyncio.Event()

    @handler(limit=Limit(1, per="text"))
    async def measure(text: str) -> None:
        await gate.wait()

    async with (
        AsyncBridge(settings.url, codec=zlib_codec) as bridge,
        listening(replace(settings, codec=zlib_codec), witness, measure=measure),
    ):
        tasks: list[dict[str, Any]] = [
            {"func": "test.measure", "args": [f"{n}{LARGE}"], "delay": 0} for n in range(4)
        ]
        await bridge.make_tasks(tasks)
        await witness.until(lambda: len(witness.seen(Started)) == 4)
        lanes = {lane.name for lane in (await bridge.limits()).lanes}
        gate.set()
        await witness.until_ended(4, End.SUCCEEDED)
    assert lanes == {f"test.measure:text={lane_value(task['args'][0])}" for task in tasks}


@pytest.mark.parametrize(
    ("made", "fault"),
    [
        (b"x" * 49_153, r"args: the codec made 49,153 bytes of 80,0\d\d; at most 49,152"),
        ("text", "args: the codec's encode returned str; it must return bytes"),
    ],
)
def test_what_a_record_cannot_hold_is_refused(url: str, made: Any, fault: str) -> None:
    class Large(Zlib):
        def encode(self, args: bytes, id: str) -> bytes:  # noqa: ARG002
            encoded: bytes = made
            return encoded

    with Bridge(url, codec=Large()) as bridge:
        with pytest.raises(InvalidTask, match=fault):
            bridge.make_task("test.measure", [LARGE], "1h")
        assert bridge.count().unfinished == 0


def test_a_codec_is_found_by_its_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPIREBRIDGE_CODEC", f"{__name__}:zlib_codec")
    with Bridge(url) as bridge:
        assert bridge.make_task("test.measure", [LARGE], "1h").args != [LARGE]
    monkeypatch.setenv("EXPIREBRIDGE_CODEC", f"{__name__}:measure")
    with Bridge(url) as bridge, pytest.raises(InvalidSetting, match="lacks the functions encode"):
        bridge.make_task("test.measure", [LARGE], "1h")
    monkeypatch.setenv("EXPIREBRIDGE_CODEC", f"{__name__}:nobody")
    with Bridge(url) as bridge, pytest.raises(InvalidSetting, match="it cannot be imported"):
        bridge.make_task("test.measure", [LARGE], "1h")
    monkeypatch.setenv("EXPIREBRIDGE_CODEC", "nowhere")
    with pytest.raises(InvalidSetting, match="EXPIREBRIDGE_CODEC=nowhere: write module:object"):
        Bridge(url)


def test_without_a_codec_large_arguments_are_refused(url: str) -> None:
    with Bridge(url) as bridge, pytest.raises(InvalidTask, match="or give a codec"):
        bridge.make_task("test.measure", [LARGE], "1h")


def test_people_see_how_large_they_are_and_files_keep_them(url: str, tmp_path: Path) -> None:
    with Bridge(url, codec=zlib_codec) as bridge:
        task = bridge.make_task("test.measure", [LARGE], "1h", id="a")
        shown = task.args[0]
        assert shown in invoke("show", "a", url=url)
        assert invoke_json("list", url=url)["tasks"][0]["args"] == [shown]
        invoke("export", str(tmp_path / "tasks"), url=url)
        bridge.cancel("a")
        text = (tmp_path / "tasks").read_text().replace('"id":"a"', '"id":"b"')
        (tmp_path / "tasks").write_text(text)
        invoke("import", str(tmp_path / "tasks"), url=url)
        again = bridge.get("b")
        assert again is not None
        assert (again.args, again.key) == ([shown], b"b:?test.measure?@")


def test_the_comparison_before_a_deploy_leaves_them_out(url: str, store: Store) -> None:
    registry = registry_of(measure=measure)
    with Bridge(url, codec=zlib_codec) as bridge:
        bridge.make_task("test.measure", [LARGE], "1h")
        bridge.make_task("test.measure", [1], "2h")
    comparison = store.run(compare(registry, store.run(scope_of()), progress=lambda _: None))
    assert [(group.verdict, group.arguments) for group in comparison.groups()] == [
        (Verdict.UNCHECKED, None),
        (Verdict.FITS, (1, ())),
    ]
    assert comparison.blind_spots() == [
        BlindSpot("encoded or sealed arguments", ["test.measure"], 1)
    ]
