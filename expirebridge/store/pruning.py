"""Leaves out of a script what it does not use.

The server runs a script's whole text at each call: every function in it is created again, and is
garbage when the call is over. Scripts include far more than they need (see docs/adr/0014).
"""

import re

# A statement that begins a line, with the comment above it and the lines that belong to it.
_STATEMENT = re.compile(
    r"(?:^(?:--.*)?\n)*"  # blank lines and comments
    r"^[a-zA-Z].*\n"
    r"(?:^(?:[ \t].*|end\b.*|else.*|[})].*)?\n)*",
    re.MULTILINE,
)
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\w+")
# What does nothing unless it is named: a function, or a constant, whose name is in capitals.
_DEFINITION = re.compile(r"local (?:function (?P<function>\w+)|(?P<constant>[A-Z_]+) =)")


def prune(text: str) -> str:
    """Return the script without the functions and constants that nothing in it leads to."""
    statements = _STATEMENT.findall(text)
    if "".join(statements) != text:
        raise ValueError("in a script a statement begins its line, and what is in it does not")
    code = [_COMMENT.sub("", statement).strip() for statement in statements]
    names = [_name_of(each) for each in code]
    words = [set(_WORD.findall(each)) for each in code]
    used = {at for at, name in enumerate(names) if name is None}
    follow = list(used)
    while follow:
        reached = words[follow.pop()]
        found = {at for at, name in enumerate(names) if name in reached} - used
        used |= found
        follow += found
    return "".join(statements[at] for at in sorted(used))


def _name_of(code: str) -> str | None:
    definition = _DEFINITION.match(code)
    return definition and (definition["function"] or definition["constant"])
