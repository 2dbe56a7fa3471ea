"""Keys for tests, as EXPIREBRIDGE_KEYS holds them."""

from base64 import b64encode


def key(name: str, byte: int = 1) -> str:
    """A key of this name, which differs from those with another byte."""
    return f"{name}:{b64encode(bytes([byte]) * 64).decode()}"


K1, K2 = key("k1", 1), key("k2", 2)
