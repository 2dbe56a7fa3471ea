"""The structured part of a log record: the event, a name that does not change, and fields.

No field and no line holds the arguments or the result of a task, or the text of an exception that
a handler raised: they may be secrets. `docs/reference/log-events.md` lists the events.
"""

import logging


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a line of the log."""
    return {"event": name, "fields": fields}


def message_of(record: logging.LogRecord) -> str:
    """Return the record's message. A mistake in a handler's logging call must not break the log."""
    try:
        return record.getMessage()
    except Exception as error:
        return (
            f"a message that cannot be formatted ({type(error).__name__}): see "
            f"{record.pathname}, line {record.lineno}"
        )
