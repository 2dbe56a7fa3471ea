-- include clock
-- include format
-- include grants
-- include hooks
-- include lane_names
-- include lanes
-- include names
-- include state_sets
-- when limits
-- on on_edit 20 leave_if_others
-- on on_swap 20 leave_for_others

-- The lanes that a task's arguments name, as a set; and as a text, with the tenants.
local function lanes_by(record)
  local limits = limits_of(string.match(record.call, '^[^?]*'))
  if not limits then return {}, '' end
  local named, words = {}, {}
  local lanes, tenants, costs = lanes_of(limits, record)
  for i, lane in ipairs(lanes) do
    named[lane] = true
    words[i] = lane .. '\t' .. (tenants[lane] or '') .. '\t' .. (costs[lane] or '')
  end
  return named, table.concat(words, '\n')
end

-- Takes a task whose lanes are others now out of those in which it has a slot, but for `named`. If it waits, or was
-- granted a slot, it is pending since its first due time, and its next claim looks for the new lanes. Nobody was late
-- while it waited.
local function leave_former(id, record, named)
  local is_given = record.state == 'pending' and is_granted(id)
  if record.state == 'waiting' then note_waited(id) end
  if is_given or record.state == 'waiting' then
    wait_until(id, record, is_given and tonumber(record.due) or due_of(id, record))
    leave_lanes(id, 'ordered')
  end
  local slots = redis.call('HGET', record_key(id), 'slots')
  if slots then drop_slots(id, slots, function(lane) return not named[lane] end) end
end

local function leave_if_others(id, record, new)
  local named, text = lanes_by(new)
  if text ~= select(2, lanes_by(record)) then leave_former(id, new, named) end
end

-- With another function it is on no hold, and in no lane, of the former one. What both name it keeps.
local function leave_for_others(id, record, new) leave_former(id, new, (lanes_by(new))) end
