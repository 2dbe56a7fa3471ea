-- include names

-- The least number of a pass that the listener must find here to claim tasks of a ledger; nil if it
-- has no ledger, or its gate is closed.
local gate = tonumber(ARGV[12])
-- Beyond so many rows to be written, no task of a ledger begins.
local MOST_DIRTY = 100000
local withheld

-- Whether tasks of a ledger are left to others, or until the ledger has caught up.
local function is_withheld()
  if withheld == nil then
    local number = redis.pcall('HGET', ledger_key(), 'number')
    number = type(number) == 'string' and tonumber(number) or 0
    local dirty = redis.pcall('ZCARD', state_set('dirty'))
    withheld = not gate or number < gate or type(dirty) ~= 'number' or dirty > MOST_DIRTY
  end
  return withheld
end
