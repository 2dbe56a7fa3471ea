-- include format
-- include hooks
-- include names
-- include ledger
-- unless plain
-- on on_look 10 is_blocked

-- The lowest batch number that must have been relayed here before the listener claims tasks of its ledger; nil
-- if it has no ledger, or its gate is closed.
local gate = tonumber(ARGV[13])
-- If more rows than this are dirty, no task of a ledger starts.
local MOST_DIRTY = 100000
local ledger_blocked

-- True if tasks of a ledger are not claimed now: this listener may not, or the ledger must catch up first.
local function is_ledger_blocked()
  if ledger_blocked == nil then
    local number = redis.pcall('HGET', ledger_key(), 'number')
    number = type(number) == 'string' and tonumber(number) or 0
    local dirty = redis.pcall('ZCARD', state_set('dirty'))
    ledger_blocked = not gate or number < gate or type(dirty) ~= 'number' or dirty > MOST_DIRTY
  end
  return ledger_blocked
end

local function is_blocked(record) return record.ledger and is_ledger_blocked() end
