"""The log of a process for handlers: its listener writes it, as it writes its own."""

import logging
from collections.abc import Mapping
from typing import Any

import orjson

from expirebridge.listener.execution.process_pool.channel import Channel
from expirebridge.listener.execution.process_pool.protocol import Logged
from expirebridge.model.current import running_task
from expirebridge.model.log_fields import message_of

_LEFT_OUT = {"msg", "args", "exc_info"}
"""What a record holds in another form: its message, and the text of its traceback."""


def send_log(channel: Channel, levels: Mapping[str, int]) -> None:
    """Send what is logged in this process from now on, warnings included, from these levels on."""
    logging.getLogger().addHandler(SendLog(channel))
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(level)
    logging.captureWarnings(capture=True)


class SendLog(logging.Handler):
    """Sends each record to the listener. In a forked process, what is urgent goes to stderr."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        if not self._channel.is_ours:
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        try:
            frame = Logged(
                record=self._plain(record), is_of_task=running_task.get(None) is not None
            )
            self._channel.send(frame)
        except Exception:
            self.handleError(record)

    def _plain(self, record: logging.LogRecord) -> dict[str, Any]:
        """The record's attributes, as values that need no code of their own to be read."""
        plain = {
            name: _plain(value) for name, value in vars(record).items() if name not in _LEFT_OUT
        }
        plain["msg"] = message_of(record)
        if record.exc_info and not record.exc_text:
            plain["exc_text"] = self._formatter.formatException(record.exc_info)
        return plain


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    try:
        return orjson.loads(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS))
    except Exception:
        return f"a {type(value).__name__} that JSON cannot hold"
