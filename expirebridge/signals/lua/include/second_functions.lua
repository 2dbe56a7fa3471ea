-- include hooks
-- when signals
-- on other_functions 60 OTHER_FUNCTIONS

-- What a signal would run must be known to listeners, and take the task's arguments, too.
local OTHER_FUNCTIONS = { 'on_signal' }
