-- include clock
-- include format
-- include hooks
-- include names
-- include urgent_index
-- when urgent
-- on on_move 70 follow_urgent
-- on on_forget 70 leave_index
-- on on_served 70 place_granted
-- on on_first 70 first_urgent
-- on on_skip 70 leave_index
-- on on_take 70 note_taken
-- on before_taken 70 remove_taken
-- on on_sweep 70 mend_index

-- Keeps the index, and has a claim look at what is in it before all others.

local MENDED_AT_ONCE = 20
-- The ids that this claim found in the index, and those of them that it takes.
local found_there, taken_from_it = {}, {}
local mended = 0

local function leave_index(id) change_index('ZREM', id) end

local function place_if_urgent(id, due)
  if type(redis.pcall('HGET', record_key(id), 'urgent')) == 'string' then change_index('ZADD', due, id) end
end

local function follow_urgent(id, _, before, state, look_at)
  if state == 'pending' then
    place_if_urgent(id, look_at)
  elseif before == 'pending' then
    leave_index(id)
  end
end

-- `places` are scores and ids of tasks that were given the slot for which they waited.
local function place_granted(places)
  for i = 1, #places, 2 do place_if_urgent(places[i + 1], places[i]) end
end

-- Gives an entry the time that the task has, or removes it if the task is not pending. Returns the time, as text.
local function mend_entry(id, score)
  local due = redis.call('ZSCORE', state_set('pending'), id)
  if due ~= score then mended = mended + 1 end
  if not due then
    leave_index(id)
  elseif due ~= score then
    change_index('ZADD', due, id)
  end
  return due
end

-- The first urgent tasks that are due, at most so many, each followed by its score. None comes twice, whatever became of
-- it: that ends.
local function first_urgent(most)
  local ids = {}
  local before
  repeat
    before = mended
    local there = change_index('ZRANGEBYSCORE', '-inf', now, 'WITHSCORES', 'LIMIT', 0, most)
    for i = 1, #there, 2 do
      local due = mend_entry(there[i], there[i + 1])
      if due and tonumber(due) <= now and not found_there[there[i]] then
        ids[#ids + 1], ids[#ids + 2] = there[i], due
        found_there[there[i]] = true
      end
    end
  until ids[1] or mended == before
  return ids
end

local function note_taken(id)
  if found_there[id] then taken_from_it[#taken_from_it + 1] = id end
end

local function remove_taken()
  if not taken_from_it[1] then return end
  change_index('ZREM', unpack(taken_from_it))
  taken_from_it = {}
end

-- Looks at a few entries: an interrupted script, a task that was moved to another database, or another client may have
-- left one too many.
local function mend_index()
  local some = change_index('ZRANDMEMBER', MENDED_AT_ONCE, 'WITHSCORES')
  for i = 1, #some, 2 do mend_entry(some[i], some[i + 1]) end
end
