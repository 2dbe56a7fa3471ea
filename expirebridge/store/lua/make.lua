-- flags: (none: refused whole when memory is full)
-- Makes tasks: record, place in `pending` and timer of each, all or nothing.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, then for each task:
--          id, '1' if the id was drawn at random for this call (else '0'),
--          if_exists ('reject' or 'keep'), call, 'in' or 'at', ms (from now, or since 1970),
--          n, then n names and values for the record
-- returns  now, then for each task: code, due in ms, trigger key, call, state,
--          args (if they are in the record)
--          codes: 1 created, 2 kept, 3 exists
--
-- A resend finds its own work and answers as before: by the nonce where the caller chose the id;
-- an id drawn at random can only be there because this very call put it there.

-- include names
-- include clock
-- include format
-- include mark_format
-- include records
-- include doorbell

local nonce = ARGV[2]
local CREATED, KEPT, EXISTS = 1, 2, 3

local function due_of(id, record)
  if record.state == 'paused' then return now + (tonumber(record.left) or 0) end
  if record.state ~= 'pending' then return tonumber(record.due) or now end
  return read_timer(id, record) or tonumber(redis.call('ZSCORE', state_set('pending'), id)) or now
end

local function create(id, item, old)
  if old then
    redis.call('DEL', trigger_key(id, old))
    forget(id, old.state)
  end
  local fields = { 'call', item.call, 'made', math.floor(now / 1000) }
  for _, value in ipairs(item.fields) do fields[#fields + 1] = value end
  if not item.drawn then
    fields[#fields + 1] = 'nonce'
    fields[#fields + 1] = nonce
  end
  redis.call('HSET', record_key(id), unpack(fields))
  redis.call('ZADD', state_set('pending'), item.due, id)
  set_timer(id, item, item.due)
  for tag in string.gmatch(item.tags or '', '%S+') do redis.call('SADD', tag_set(tag), id) end
end

local function next_item(at)
  local item = { drawn = ARGV[at + 1] == '1', if_exists = ARGV[at + 2], call = ARGV[at + 3],
    fields = {} }
  local ms, count = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  item.due = ARGV[at + 4] == 'in' and now + ms or ms
  for i = at + 7, at + 6 + 2 * count do item.fields[#item.fields + 1] = ARGV[i] end
  for i = 1, #item.fields, 2 do item[item.fields[i]] = item.fields[i + 1] end
  return ARGV[at], item, at + 7 + 2 * count
end

mark_format()
local before, soonest = earliest(), math.huge
local reply, at = { now }, 3
while at <= #ARGV do
  local id, item, after = next_item(at)
  at = after
  local old = read(id, { 'nonce', 'due', 'args', 'left' })
  local code, due, state, task = CREATED, item.due, 'pending', item
  if old and (item.drawn or old.nonce == nonce) then
    due, state = due_of(id, old), old.state
  elseif old and not FINISHED[old.state] then
    code = item.if_exists == 'keep' and KEPT or EXISTS
    due, state, task = due_of(id, old), old.state, old
  else
    create(id, item, old)
    soonest = math.min(soonest, due)
  end
  local row = { code, due, trigger_key(id, task), task.call, state, task.args or false }
  for _, value in ipairs(row) do reply[#reply + 1] = value end
end
ring(soonest, before)
return reply
