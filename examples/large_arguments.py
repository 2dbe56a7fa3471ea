"""Two codecs, which keep arguments of more than 64 KiB in files or in an object store.

docs/how-to/large-arguments.md says how they are used, and who deletes what they keep.
"""

import hashlib
import os
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from expirebridge import Discard


def digest_of(args: bytes, id: str) -> bytes:
    """A name that is the same for the same task, so that if_exists="extend" finds it unchanged."""
    return hashlib.sha256(id.encode() + b" " + args).digest()


class FileCodec:
    """Keeps arguments in a folder that producers and listeners share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def encode(self, args: bytes, id: str) -> bytes:
        """Write a file, and return its name."""
        digest = digest_of(args, id)
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
            file.write(args)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(self.folder / digest.hex())  # nobody reads half a file
        return digest

    def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
        """Read the file."""
        try:
            return (self.folder / encoded.hex()).read_bytes()
        except FileNotFoundError:
            raise Discard("the file with its arguments is gone") from None


class ObjectCodec:
    """Keeps arguments in a bucket of a store that takes PUT and GET, as S3 does.

    For S3 itself, which wants signed requests, call `put_object` and `get_object` of boto3 instead.
    """

    def __init__(self, bucket: str, *, timeout: float = 10) -> None:
        self.bucket = bucket.rstrip("/")
        self.timeout = timeout

    def encode(self, args: bytes, id: str) -> bytes:
        """Put an object, and return its name."""
        digest = digest_of(args, id)
        self.request("PUT", digest, args)
        return digest

    def decode(self, encoded: bytes, id: str) -> bytes:  # noqa: ARG002
        """Get the object. An error other than 404 means that the store is away: it is retried."""
        try:
            return self.request("GET", encoded)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                raise Discard("the object with its arguments is gone") from None
            raise

    def request(self, method: str, digest: bytes, body: bytes | None = None) -> bytes:
        """Send a request for one object, and return the body of the answer."""
        url = f"{self.bucket}/{digest.hex()}"
        request = urllib.request.Request(url, data=body, method=method)  # noqa: S310 - the caller's
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as response:  # noqa: S310
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            error.close()
            raise
