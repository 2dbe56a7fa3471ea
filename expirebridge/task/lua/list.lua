-- flags: no-writes
-- Reads a page of tasks: of one state, of one tag, or of one group.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 state or '' for any, 3 func or '', 4 tag or '', 5 cursor ('0' to begin),
--          6 most tasks to look at, 7 group or ''
-- returns  next cursor ('0': no more), how many were looked at, then the tasks, as `get` does
--
-- Without a tag and a group it requires the state, and the cursor is a rank in its set: waiting tasks come soonest
-- first, finished ones latest first. Of a group it is the number of a member; those that cannot be in the state are
-- passed over by their bits, and not counted as looked at.

-- include names
-- include records
-- include task_view
-- include hooks

local state, func, tag, cursor, count = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])

local function ids_by_state()
  local from = tonumber(cursor)
  local order = FINISHED[state] and 'ZREVRANGE' or 'ZRANGE'
  local ids = redis.call(order, state_set(state), from, from + count - 1)
  return #ids < count and '0' or string.format('%.0f', from + #ids), ids
end

local function ids_by_tag()
  local page = redis.call('SSCAN', tag_set(tag), cursor, 'COUNT', count)
  return page[1], page[2]
end

local next_cursor, ids
for i = 1, #on_list do next_cursor, ids = on_list[i](state, cursor, count) end
if not ids then
  local page = tag ~= '' and ids_by_tag or ids_by_state
  next_cursor, ids = page()
end

local reply = { next_cursor, #ids }
for _, id in ipairs(ids) do
  local record = read(id)
  if record and (state == '' or record.state == state)
    and (func == '' or string.sub(record.call, 1, #func + 1) == func .. '?') then
    local score = tonumber(redis.call('ZSCORE', state_set(record.state), id))
    reply[#reply + 1] = view(id, record.state, score)
  end
end
return reply
