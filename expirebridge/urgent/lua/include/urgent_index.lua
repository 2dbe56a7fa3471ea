-- include names
-- gives change_index, marks_key

-- The urgent tasks that are pending, by their due times: a sorted set, which is a hint. `pending` decides, so an entry
-- too many is removed where it is met, and a task without one is taken in its turn. The hash of functions has those that
-- listeners declared as urgent.

local function index_key() return own_key('urgent') end
local function marks_key() return own_key('urgent_functions') end

-- A command for the index. If another client overwrote it, it is put aside.
local function change_index(command, ...) return or_put_aside('urgent', command, index_key(), ...) end
