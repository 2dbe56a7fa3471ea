-- include names
-- include clock
-- gives tally, tally_late, write_tally

-- Counts the outcomes of attempts and their lateness: a hash per minute, kept for a day.
-- A field is an outcome's first letter and its step of lateness: the place of the first of these limits
-- in ms that it did not exceed, or one more if it exceeded all. The field `l <cause>` has the ms by which attempts
-- began late for that cause; `o +<ms> <function>` those that kept to this objective, `o -<ms> <function>` those that
-- did not.
local STEPS = { 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 600000 }
local TALLIED = { succeeded = 's', retry = 'r', failed = 'f' }
local DAY = 86400

-- Counts by outcome and step, and by other fields. A name is made of them in the end: to make text of a number takes
-- the server as long as a small command.
local steps, tallied = { succeeded = {}, retry = {}, failed = {} }, {}

-- Needs the fields `due` and `started`, and `waited` if there are limits: nobody is late while it waits for a slot.
local function tally(record, outcome)
  if not TALLIED[outcome] then return end
  local late = (tonumber(record.started) or now) - (tonumber(record.due) or now)
  if record.waited then late = late - (tonumber(string.match(record.waited, '^%d+')) or 0) end
  local step = 1
  while STEPS[step] and late > STEPS[step] do step = step + 1 end
  steps[outcome][step] = (steps[outcome][step] or 0) + 1
end

-- Notes by how many ms an attempt began late, and why, if it ended by itself; '-' if it did not. And whether it kept
-- to its function's objective: '' if that has none.
local function tally_late(id, record, outcome, late, cause, objective)
  if not TALLIED[outcome] then return end
  if objective ~= '' then
    local field = 'o ' .. objective .. ' ' .. string.match(record.call, '^[^?]*')
    tallied[field] = (tallied[field] or 0) + 1
  end
  if cause == '-' then return end
  local field = 'l ' .. cause
  tallied[field] = (tallied[field] or 0) + tonumber(late)
  redis.call('HSET', record_key(id), 'late', late .. ' ' .. cause .. ' ' .. (record.started or ''))
end

-- One command for all with the same field. A key that another client overwrote is left alone.
local function write_tally()
  for outcome, counts in pairs(steps) do
    for step, count in pairs(counts) do tallied[TALLIED[outcome] .. step] = count end
  end
  local name = minute_key(math.floor(now / 60000))
  for field, count in pairs(tallied) do
    if redis.pcall('HINCRBY', name, field, count) == count then
      redis.call('EXPIRE', name, DAY)
    end
  end
end
