"""What the relay looks for."""

from enum import Enum, auto


class Look(Enum):
    """What a look of the relay is for."""

    ALL = auto()  # whatever there is: it may have missed a notification
    ROWS = auto()  # rows that were committed, and nothing else: more may be committed meanwhile
    ENDS = auto()  # what has ended, and rows that wait beside that
