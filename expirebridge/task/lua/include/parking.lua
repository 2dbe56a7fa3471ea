-- gives parked, MOST_PARKED

-- Tasks that this script made wait.
local parked = 0
-- At most so many in one script.
local MOST_PARKED = 100
