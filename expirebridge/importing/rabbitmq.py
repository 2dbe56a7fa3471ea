"""RabbitMQ's plugin for delayed messages, which keeps them in a table of Mnesia on each node.

No client of the broker can read that table. examples/rabbitmq/delayed.erl, which `rabbitmqctl` runs
in the node, writes each message as a line of JSON. The records are those of
src/rabbit_delayed_message.erl, of the plugin's 3.10 to 4.2.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from expirebridge.errors import InvalidSetting
from expirebridge.importing import celery, redis_source
from expirebridge.importing.job import Found, Job, JobFilter, Refused, SkippedJob, id_of
from expirebridge.importing.redis_source import PAGE
from expirebridge.task.task import from_ms
from expirebridge.task.texts import plural


class CountedLines:
    """The lines of JSON of a file that ends with their number, as the script writes it.

    Several such files may stand in one, each with its number.
    """

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


_OWN_HEADERS = {"x-delay"}
_LATEST = 2**53


class RabbitMQ:
    """The delayed messages of a node, as lines."""

    def __init__(self, lines: CountedLines, wanted: JobFilter) -> None:
        self._lines, self._wanted = lines, wanted

    def count(self) -> int:
        """See `Source.count`."""
        return self._lines.count()

    def pages(self) -> Iterator[list[Found]]:
        """See `Source.pages`."""
        for page in self._lines.pages():
            yield [self._found(values) for values in page]

    def _found(self, values: dict[str, Any]) -> Found:
        id = str(values.get("id"))
        try:
            return self._job(id, values)
        except Refused as error:
            return SkippedJob(id, str(error), refused=True)
        except RecursionError:
            return SkippedJob(id, "its arguments are nested too deep", refused=True)

    def _job(self, id: str, values: dict[str, Any]) -> Found:
        match values:
            case {
                "id": str(),
                "due": int() as due,
                "exchange": str() as exchange,
                "routing_key": str() | None as key,
                "headers": dict() as headers,
                "content_type": str() | None as kind,
                "body": str() as encoded,
            } if 0 <= due < _LATEST:
                pass
            case _:
                raise Refused("it is not a message as the script writes it")
        try:
            raw = base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise Refused("its body is not base64") from None
        body = redis_source.json_of(raw, f"its body, {kind}," if kind else "its body")
        if isinstance(headers.get("task"), str) and isinstance(headers.get("id"), str):
            return self._of_celery(headers, body, due)
        return Job(
            source_id=id,
            id=id_of("rabbitmq", id),
            names=(f"{exchange}.{key}", exchange) if key else (exchange,),
            args=[body],
            kwargs={},
            due=due,
            policies={},
            changes=("headers are ignored",) if headers.keys() - _OWN_HEADERS else (),
        )

    def _of_celery(self, headers: dict[str, Any], body: Any, due: int) -> Found:
        """A task of Celery; a worker keeps it until its ETA, if that is later."""
        eta = headers.get("eta") or from_ms(due).isoformat()
        found = celery.read_message(headers["id"], headers | {"eta": eta}, body, self._wanted)
        return replace(found, due=max(found.due, due)) if isinstance(found, Job) else found
