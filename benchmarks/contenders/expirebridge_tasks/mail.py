"""The handlers' folder of contenders/expirebridge.py."""

from benchmarks.kit import journal


async def send(number: int, user: str) -> None:  # noqa: ARG001 - as the reference task has it
    await journal.handle(number)


def send_plain(number: int, user: str) -> None:  # noqa: ARG001
    journal.handle_plain(number)
