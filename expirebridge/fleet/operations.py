"""What the operations ask the fleet: whether it knows a function, and takes its arguments."""

from collections.abc import Iterable, Sequence

from expirebridge import fleet
from expirebridge.errors import InvalidTask, ScriptFailed
from expirebridge.fleet.unknown_functions import UnknownFunctions
from expirebridge.hooks import Hooks
from expirebridge.settings import Settings
from expirebridge.task import keys
from expirebridge.task.calls.call import Steps
from expirebridge.task.calls.fleet import read_fleet
from expirebridge.task.operations.base import UnknownFunction
from expirebridge.task.operations.editing import EditingOperations


class FleetOperations(EditingOperations):
    """Holds new tasks, and new arguments, against what the listeners know."""

    def __init__(
        self, settings: Settings, hooks: Hooks, *, unknown: UnknownFunction = "off"
    ) -> None:
        super().__init__(settings, hooks, unknown=unknown)
        self._unknown_functions = UnknownFunctions(unknown, settings)

    def _before_making(self, funcs: Iterable[str]) -> Steps[None]:
        if self._unknown_functions.refuses:
            yield from self._unknown_functions.check(funcs)

    def _after_making(self, funcs: Iterable[str]) -> Steps[None]:
        if self._unknown_functions.warns:
            yield from self._unknown_functions.warn(funcs)

    def _is_checked(self, func: str, encoded: bytes) -> Steps[bool]:
        """Hold arguments against the signatures of the fleet; False if no listener declares one.

        While several codes run, one that takes them is enough: the others leave the task to it.
        Raises InvalidTask if none does.
        """
        try:
            known = yield from read_fleet(self._settings.lease)
        except ScriptFailed:
            return False
        believed = fleet.functions.believed(known)
        shapes = {shapes[func] for shapes in believed.values() if func in shapes}
        return _fit_one(func, sorted(shapes), encoded)


def _fit_one(func: str, shapes: Sequence[str], encoded: bytes) -> bool:
    """True if arguments fit one of these signatures; False if none of them can be read."""
    args, kwargs = keys.decode_args(encoded)
    misfits, is_known = [], True
    for text in shapes:
        try:
            shape = fleet.signatures.Shape.read(text)
        except ValueError:  # another client wrote it
            is_known = False
            continue
        misfit = shape.fits(len(args), kwargs)
        if shape.known and misfit is None:
            return True
        is_known = is_known and shape.known
        misfits.append(f"{func}{shape}: {misfit}")
    if misfits and is_known:
        raise InvalidTask(f"the arguments do not fit: {'; '.join(misfits)}")
    return False
