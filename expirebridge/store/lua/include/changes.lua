-- What became of a change that a producer asked for.
local DONE, REARMED, RUNNING, FINISHED_BEFORE, NOT_FOUND, NOT_WATCHED = 1, 2, 3, 4, 5, 6
