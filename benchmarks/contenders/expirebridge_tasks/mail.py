"""The handlers' folder of contenders/expirebridge.py."""

from benchmarks.kit import journal


async def send(number: int, user: str) -> None:
    await journal.handle(number)


def send_plain(number: int, user: str) -> None:
    journal.handle_plain(number)
