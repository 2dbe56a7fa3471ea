"""Asks a language model, and keeps to what its provider allows and users have paid for."""

import os

import httpx

from expirebridge import Budget, Busy, Limit, Rate, current_task, handler

PROVIDER = "http://127.0.0.1:8089"
LONGEST = 400  # tokens of an answer


# The provider allows each key 60 requests and 20,000 tokens in any minute.
@handler(
    rate=[
        Budget(14_000, "1m", of="tokens", per="key", burst=4_000),
        Rate(48, "1m", per="key", burst=10),
        Rate(5, "1d", per="user", burst=5),
    ],
    limit=Limit(4, per="key"),  # their answers are at most 1,600 tokens that nobody has counted yet
)
def ask(key: str, user: str, tokens: int, prompt: str) -> str:
    """Return the answer. `tokens` is what the prompt takes."""
    question = {"key": key, "user": user, "prompt": prompt, "longest": LONGEST}
    response = httpx.post(os.environ.get("LLM_URL", PROVIDER), json=question, timeout=60)
    if response.status_code == 429:  # another program has the same key
        raise Busy(float(response.headers["Retry-After"]), per="key")
    answer = response.raise_for_status().json()
    current_task().spend(answer["tokens"])  # beyond those of the prompt
    return str(answer["text"])
