"""A file of lines of JSON that ends with their number, as a script at the other side writes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from expirebridge.errors import InvalidSetting
from expirebridge.importing.redis_pages import PAGE
from expirebridge.task.counting import plural


class CountedLines:
    """The lines of a file. Several such files may stand in one, each with its number."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def count(self) -> int:
        """Read the whole file. Raises InvalidSetting if a part of it is missing or is no JSON."""
        total = counted = 0
        for number, values in self._read():
            if isinstance(values, dict):
                total += 1
            elif values == total - counted and values is not True:
                counted = total
            else:
                more = plural(total - counted, "line with objects is", "lines with objects are")
                raise self._bad(number, f"{more} before it")
        if counted != total:
            raise self._bad(None, "it does not end with the number of its lines")
        return total

    def pages(self) -> Iterator[list[dict[str, Any]]]:
        """The lines that are objects, a few hundred at a time."""
        page: list[dict[str, Any]] = []
        for _, values in self._read():
            if isinstance(values, dict):
                page.append(values)
            if len(page) == PAGE:
                yield page
                page = []
        yield page

    def _read(self) -> Iterator[tuple[int, Any]]:
        try:
            with self.file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield number, self._values(number, line)
        except OSError as error:
            raise InvalidSetting(f"{self.file}: it cannot be read: {error.strerror}") from None

    def _values(self, number: int, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            raise self._bad(number, "it is not JSON") from None

    def _bad(self, number: int | None, what: str) -> InvalidSetting:
        where = "" if number is None else f", line {number}"
        return InvalidSetting(f"{self.file}{where}: {what}: write the file again")
