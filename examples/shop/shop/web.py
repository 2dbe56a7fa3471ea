"""The web part: signing up and ordering make tasks.

python -m shop.web --port 8000
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from expirebridge import make_task
from shop.tasks import mail, orders


class Shop(BaseHTTPRequestHandler):
    """Answers POST /sign-up?name=... and POST /order?name=...&number=..."""

    def do_POST(self) -> None:
        """Make the task, and answer with its id and its function."""
        address = urlsplit(self.path)
        given = dict(parse_qsl(address.query))
        match address.path, given:
            case "/sign-up", {"name": name}:
                task = make_task(mail.welcome, [name], "1s")
            case "/order", {"name": name, "number": number}:
                task = make_task(orders.rate, [name, int(number)], "72h")
            case _:
                self.send_error(404)
                return
        self.send_response(201)
        self.end_headers()
        self.wfile.write(json.dumps({"id": task.id, "func": task.func}).encode())


def main() -> None:
    """Serve until the process is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000, help="0: any free port")
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Shop)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
