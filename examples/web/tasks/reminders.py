"""What the listener inside the web application runs."""

import logging

from outbox import sent

logger = logging.getLogger(__name__)


async def send(user: str) -> None:
    """Send a reminder; here it is only noted."""
    logger.info("reminding %s", user)
    sent.append(user)
