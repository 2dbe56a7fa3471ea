"""Makes more requests than the provider answers in a minute."""

from collections.abc import Iterable

from expirebridge import Bridge


def ask_for(bridge: Bridge, key: str, users: Iterable[str], each: int) -> None:
    """Ask so many questions for each user, of 100 to 900 words."""
    for user in users:
        for number in range(each):
            length = 100 + (number * 37 + len(user) * 101) % 801
            prompt = "word " * length
            bridge.make_task("llm.ask", [key, user, length, prompt], 0, tags=[user])


if __name__ == "__main__":
    with Bridge() as bridge:
        ask_for(bridge, "main", ["ann", "bob", "cecilia", "dan"], 8)
