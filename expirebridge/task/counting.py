"""Numbers with the right word."""


def plural(count: int, one: str, more: str) -> str:
    """A number, with the word for one or for more."""
    return f"{count:,} {one if count == 1 else more}"
