"""What the web part and the handlers know about customers."""


def greeting(name: str) -> str:
    """How a mail to this customer begins."""
    return f"Dear {name.capitalize()}"
