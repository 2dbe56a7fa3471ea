"""What handlers that nobody declared may really be: decorators, lambdas and other helpers."""

from types import CodeType

from expirebridge.handlers.definition import Handler

LAMBDA = "<lambda>"


def helper_kind(handler: Handler) -> str:
    """What the function looks like, if it is no handler: a guess for people, never a rule."""
    function = handler.function
    _, _, name = handler.name.rpartition(".")
    if function.__name__ == LAMBDA:
        return "lambda"
    if function.__name__ != name:
        return f"second name of {function.__name__}"
    if "<locals>" in function.__qualname__:
        return "inner function"
    if _wraps_its_argument(function.__code__):
        return "decorator"
    return "function"


def _wraps_its_argument(code: CodeType) -> bool:
    """Whether an inner function uses the first argument, as it does in a decorator."""
    return bool(code.co_argcount) and code.co_varnames[0] in code.co_cellvars
