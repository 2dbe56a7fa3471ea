-- include names

-- Tells listeners to look: at a time, or for a beat. All databases of a server share its channels, so
-- this one's number is in the name. Where ARGV[1] is '', listeners have left it in `meta`, or none was
-- ever here.
local function tell_listeners(message)
  local database = ARGV[1]
  if database == '' then database = redis.pcall('HGET', meta_key, 'database') end
  if type(database) == 'string' then redis.call('PUBLISH', doorbell_of(database), message) end
end

-- The doorbell tells listeners that a task became the earliest of all. Take the `earliest` before
-- the change, and ring with the new due time after it.
local function earliest()
  local first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or math.huge
end

local function ring(due, before)
  if due < before then tell_listeners(string.format('%.0f', due)) end
end
