# /// script
# requires-python = ">=3.11"
# dependencies = ["pydocket==0.27.0", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "docket"
# kind = "peer"
# worker = [
#   "docket worker --docket lab --url {url} --tasks {module}:tasks --concurrency {concurrency}",
# ]
# handlers = ["async"]
# concurrency = "--concurrency 100"
# settings = "defaults; what is due is looked for every 250 ms"
# variables = { DOCKET_LOGGING_LEVEL = "WARNING" }
# redelivery = 394 # redelivery_timeout, and at most 31 % more
# documentation = ["https://docket.lol/"]
# recurring = [
#   "docket worker --docket lab --url {url} --tasks {module}:tasks --concurrency {concurrency}",
# ]
# recurring_client = "python -m benchmarks.kit.recur {module}"
# ///
"""docket: a sorted set for what is delayed, a stream for what is due."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from docket import Docket
from docket.dependencies import Cron

from benchmarks.kit import journal
from benchmarks.kit.server import SERIES, URL, USER

docket = Docket(name="lab", url=URL)


async def send(number: int, user: str) -> None:
    await journal.handle(number)


async def tick(number: int, cron: Cron = Cron("* * * * *", automatic=False)) -> None:  # noqa: B008 - as its documentation writes it
    await journal.handle(number)


tasks = [send, tick]


async def open() -> None:
    # For as long as the process lives.
    await docket.__aenter__()


async def schedule(number: int, due: float) -> None:
    await docket.add(send, when=datetime.fromtimestamp(due, UTC))(number, USER)


async def schedule_many(tasks: Sequence[tuple[int, float]]) -> None:
    await docket.add_many(
        docket.call(send, when=datetime.fromtimestamp(due, UTC))(number, USER)
        for number, due in tasks
    )


async def recur() -> None:
    minute = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
    for number in range(SERIES):
        await docket.add(tick, when=minute, key=f"series-{number}")(number)
