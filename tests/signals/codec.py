"""A codec for arguments that are too long for a record."""

import zlib


class Compression:
    def encode(self, args: bytes, id: str) -> bytes:  # noqa: ARG002 - those of a `Codec`
        return zlib.compress(args)

    def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
        return zlib.decompress(encoded)
