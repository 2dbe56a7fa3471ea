"""A handlers' folder that the first version can load, too."""

from benchmarks.kit import journal


async def send(number: int, user: str) -> None:
    await journal.handle(number)
