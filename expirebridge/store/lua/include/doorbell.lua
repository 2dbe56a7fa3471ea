-- include names

-- The doorbell tells listeners that a task became the earliest of all. Take the `earliest` before
-- the change, and ring with the new due time after it.
local function earliest()
  local first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or math.huge
end

local function ring(due, before)
  if due < before then tell_listeners(string.format('%.0f', due)) end
end
