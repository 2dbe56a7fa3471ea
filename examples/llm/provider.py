"""A provider of a language model, as far as its limits go: it answers 429 to what is above them.

It counts the requests and tokens of each key in the last minute, as strict as a provider can be. A
word is a token. Run it by itself, and it serves on port 8089.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

PORT = 8089
MINUTE = 60.0


class Answered(NamedTuple):
    """A request that was answered."""

    at: float
    key: str
    tokens: int


class Provider:
    """Answers each key so many requests, and with so many tokens, in any minute."""

    def __init__(self, requests: int = 60, tokens: int = 20_000) -> None:
        self.answered: list[Answered] = []
        self.refused = 0
        self._requests, self._tokens = requests, tokens
        self._lock = threading.Lock()

    def answer(self, key: str, prompt: str, longest: int) -> str | None:
        """Answer in at most so many words; None if the key has had all that it may have."""
        words = prompt.split()
        answer = " ".join(words[: len(words) % longest])
        tokens = len(words) + len(answer.split())
        with self._lock:
            now = time.time()
            recent = [one.tokens for one in self.of(key) if one.at > now - MINUTE]
            if len(recent) >= self._requests or sum(recent) + tokens > self._tokens:
                self.refused += 1
                return None
            self.answered.append(Answered(now, key, tokens))
        return answer

    def of(self, key: str) -> list[Answered]:
        """What was answered to a key."""
        return [one for one in self.answered if one.key == key]


def serve(provider: Provider, port: int = PORT) -> ThreadingHTTPServer:
    """Return a server that asks the provider; it serves until it is shut down."""

    class Request(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            asked = json.loads(self.rfile.read(length))
            answer = provider.answer(asked["key"], asked["prompt"], asked["longest"])
            self.send_response(200 if answer is not None else 429)
            self.send_header("Retry-After", "60")
            self.end_headers()
            tokens = len((answer or "").split())
            self.wfile.write(json.dumps({"text": answer, "tokens": tokens}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", port), Request)


if __name__ == "__main__":
    ours = Provider()
    with serve(ours) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        while True:
            time.sleep(5)
            tokens = sum(one.tokens for one in ours.answered)
            print(f"{len(ours.answered)} answered, {tokens:,} tokens, {ours.refused} refused")
