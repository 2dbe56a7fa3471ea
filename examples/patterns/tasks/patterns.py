"""Searches with patterns that users write: some take for ever, and nothing else stops them."""

import re

from expirebridge import handler


@handler(process=True, timeout="2s", retry=[])
def count(pattern: str, text: str) -> int:
    """Count the matches. A search holds Python's lock: in a thread it would hold up everything."""
    return len(re.findall(pattern, text))
