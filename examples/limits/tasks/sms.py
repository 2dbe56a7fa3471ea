"""Messages, by a provider that accepts 100 a minute."""

import logging

from expirebridge import Rate, handler

log = logging.getLogger(__name__)


@handler(rate=Rate(80, "1m", burst=20))
async def send(to: str, text: str) -> None:
    """Send a message. In any minute at most 80 and the burst of 20 begin."""
    log.info("%s: %s", to, text)
