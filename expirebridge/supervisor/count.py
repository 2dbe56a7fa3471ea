"""How many workers: a number, or one for each core that this process may use."""

from expirebridge.errors import InvalidSetting
from expirebridge.listener.cores import usable_cores

AUTO = "auto"
MOST = 256


def count_of(text: str) -> int:
    """Read the value of --workers: a number, or `auto` for one per core that this process may use.

    Raises InvalidSetting if it is neither, or not between 1 and 256.
    """
    if text == AUTO:
        return min(usable_cores(), MOST)
    if text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST:
        return int(text)
    raise InvalidSetting(f"--workers {text}: it must be a whole number from 1 to {MOST}, or {AUTO}")
