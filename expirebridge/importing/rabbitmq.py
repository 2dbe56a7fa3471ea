"""RabbitMQ's plugin for delayed messages, which keeps them in a table of Mnesia on each node.

No client of the broker can read that table. examples/rabbitmq_delayed.erl, which `rabbitmqctl` runs
in the node, writes each message as a line of JSON. The records are those of
src/rabbit_delayed_message.erl, of the plugin's 3.10 to 4.2.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from expirebridge.importing import celery, redis_pages
from expirebridge.importing.counted_lines import CountedLines
from expirebridge.importing.job import Found, Job, JobFilter, Refused, SkippedJob, id_of
from expirebridge.task.task import from_ms

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
        body = redis_pages.json_of(raw, f"its body, {kind}," if kind else "its body")
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
