-- include names
-- include clock
-- include records
-- include state_sets
-- include timer_edits
-- include hooks
-- gives check_key

-- The id in a trigger key's name, or nil for any other key. Python reads the name in full; here
-- only enough of it is read to look for the record.
local function id_of(name)
  local rest = string.gsub(name, '^{[^{}]*}', '')
  local first = string.find(rest, '?', 1, true)
  if not first or string.sub(rest, first - 1, first - 1) ~= ':' then return nil end
  if not string.find(rest, '?', first + 1, true) then return nil end
  return string.sub(rest, 1, first - 2)
end

-- Follows an edit of a timer that was missed.
local function follow(id, record)
  if record.state ~= 'pending' then return follow_timer(id, record) end
  local timer = read_timer(id, record)
  local score = tonumber(redis.call('ZSCORE', state_set('pending'), id))
  if timer == 'none' or (timer and score and timer < score - 1) then
    return follow_timer(id, record)
  end
end

-- The score that a task of each state gets if it has lost its own. A pending task whose timer is gone is due, as
-- everywhere.
local NEXT_CHECK = {
  pending = function(id, record)
    local timer = read_timer(id, record)
    return type(timer) == 'number' and timer or now
  end,
  paused = function() return now + CHECK_PAUSED_AFTER end,
  running = function(_, _, lease) return now + lease end,
  waiting = function(_, record) return tonumber(record.due) or now end,
}

local function is_lost(id, record)
  for i = 1, #stranded do
    if stranded[i](id, record) then return true end
  end
  return not redis.call('ZSCORE', state_set(record.state), id)
end

-- Puts an id that is in no state set back into that of its record.
local function restore_place(id, misplaced, lease, keep_failed)
  if not lease or not is_id(id) then return end
  local record = read(id, { 'due' })
  if record and not is_lost(id, record) then return end
  misplaced[#misplaced + 1] = id
  if not record then
    fail_broken(id, 'pending', keep_failed)
  elseif NEXT_CHECK[record.state] then
    -- One that waits for a slot finds its place at the next claim.
    local state = record.state == 'waiting' and 'pending' or record.state
    move(id, record, state, NEXT_CHECK[record.state](id, record, lease))
  elseif FINISHED[record.state] then
    move(id, record, record.state, now + keep_failed)
  else
    finish(id, { state = 'pending' }, 'failed', keep_failed, 'error',
      'its record named the state ' .. record.state)
  end
end

-- Checks a key, and adds its name to `found` if its record must be reconciled. The first three places of `found` are
-- the next cursor, the number of keys that are not ours, and the ids that were in no state set. These are put back if
-- `lease` and `keep_failed` are given, in ms.
local function check_key(name, found, lease, keep_failed)
  local id = id_of(name)
  if id then
    local record = read(id)
    if not record or trigger_key(id, record) ~= name then
      found[#found + 1] = name
    elseif NEXT_CHECK[record.state] and record.state ~= 'running' then
      follow(id, record)
    elseif FINISHED[record.state] then
      found[#found + 1] = name
    end
  elseif string.sub(name, 1, #record_key('')) == record_key('') then
    restore_place(string.sub(name, #record_key('') + 1), found[3], lease, keep_failed)
  elseif not is_ours(name) then
    found[2] = found[2] + 1
  end
end
