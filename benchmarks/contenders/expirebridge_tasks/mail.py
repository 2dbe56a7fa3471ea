"""The handlers' folder of contenders/expirebridge.py."""

from benchmarks.kit import journal
from expirebridge import handler


async def send(number: int, user: str) -> None:
    await journal.handle(number)


def send_plain(number: int, user: str) -> None:
    journal.handle_plain(number)


@handler(process=True)
def send_apart(number: int, user: str) -> None:
    journal.handle_plain(number)
