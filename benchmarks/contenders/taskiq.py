# /// script
# requires-python = ">=3.11"
# dependencies = ["taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0"]
#
# [tool.lab]
# title = "taskiq"
# kind = "peer"
# worker = [
#   """taskiq worker {module}:broker --workers 1 --max-async-tasks {concurrency}
#   --max-threadpool-threads {concurrency} --log-level WARNING""",
#   "taskiq scheduler {module}:scheduler --update-interval 1 --log-level WARNING",
# ]
# handlers = ["async", "plain"]
# concurrency = "--max-async-tasks 100 and as many threads, in one process"
# settings = """\
#   RedisStreamBroker, which acknowledges, and ListRedisScheduleSource; the scheduler reads \
#   schedules every second, not every minute as by default"""
# redelivery = 600 # idle_timeout of the stream broker
# documentation = [
#   "https://github.com/taskiq-python/taskiq-redis",
#   "https://taskiq-python.github.io/guide/scheduling-tasks.html",
# ]
# ///
"""taskiq: a scheduler process reads schedules from Redis, and sends what is due to the broker."""

from datetime import UTC, datetime

from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from benchmarks.kit import journal
from benchmarks.kit.server import HANDLER, URL, USER

broker = RedisStreamBroker(url=URL)
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, sources=[source])


@broker.task
async def send(number: int, user: str) -> None:
    await journal.handle(number)


@broker.task
def send_plain(number: int, user: str) -> None:
    journal.handle_plain(number)


task = {"async": send, "plain": send_plain}[HANDLER]


async def open() -> None:
    await broker.startup()
    await source.startup()


async def schedule(number: int, due: float) -> None:
    await task.schedule_by_time(source, datetime.fromtimestamp(due, UTC), number, USER)
