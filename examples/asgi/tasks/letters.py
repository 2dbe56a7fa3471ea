"""The handlers: what a listener runs."""

import asyncio
import logging

logger = logging.getLogger(__name__)


async def welcome(user: str) -> None:
    """Send a welcome letter."""
    logger.info("writing to %s", user)
    await asyncio.sleep(1)  # in real code: sends a mail
    logger.info("wrote to %s", user)
