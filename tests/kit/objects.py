"""A store of objects with PUT and GET below a bucket's path, as S3 has them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ObjectStore:
    """The objects by their paths; while it is away, it answers 503."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.away = False
        self.bucket = ""


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store at `bucket`, a URL, for one block."""
    store = ObjectStore()

    class Answer(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not store.away:
                store.objects[self.path] = body
            self._answer(503 if store.away else 200)

        def do_GET(self) -> None:
            found = store.objects.get(self.path)
            self._answer(503 if store.away else 404 if found is None else 200, found or b"")

        def log_message(self, *_: object) -> None:
            """Print nothing."""

        def _answer(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        store.bucket = f"http://127.0.0.1:{server.server_port}/bucket"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()
