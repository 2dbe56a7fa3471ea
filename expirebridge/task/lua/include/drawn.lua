-- include names
-- include format
-- include clock
-- include records
-- include ring
-- include hooks
-- gives MADE_CREATED, read_request, write_new, make_drawn, make_each

-- Makes tasks whose ids were drawn at random: most new tasks. The server runs the whole text for each call, so there is
-- nothing here that these do not need.

local MADE_CREATED = 1

-- Reads a new task, whose arguments begin at ARGV[at] (see make.lua). Returns its id, the task, and where the next begins.
local function read_request(at)
  local ms, after = tonumber(ARGV[at + 5]), at + 7 + 2 * ARGV[at + 6]
  local fields = { unpack(ARGV, at + 7, after - 1) }
  return ARGV[at], { has_random_id = ARGV[at + 1] == '1', if_exists = ARGV[at + 2], call = ARGV[at + 3],
    due = ARGV[at + 4] == 'in' and now + ms or ms, fields = fields, args = value_of(fields, 'args') }, after
end

-- Writes a new record, with its tags, place in `pending` (if it is not placed yet) and timer. `fields` are names and values.
local function write_new(id, record, due, fields, is_placed)
  redis.call('HSET', record_key(id), 'call', record.call, 'made', math.floor(now / 1000),
    unpack(fields))
  for i = 1, #on_new do on_new[i](id, record, due, fields) end
  if not is_placed then redis.call('ZADD', state_set('pending'), due, id) end
  soonest = math.min(soonest, due)
  set_timer(id, record, due)
  if not fields[1] then return end
  for tag in string.gmatch(value_of(fields, 'tags') or '', '%S+') do
    -- An overwritten tag set must not stop a task that is half made; any other error must.
    local told = redis.pcall('SADD', tag_set(tag), id)
    if type(told) == 'table' and not string.find(told.err, 'WRONGTYPE', 1, true) then
      redis.call('SADD', tag_set(tag), id)
    end
  end
end

-- Makes a task whose id was drawn at random for this call. It can only exist because this very call was sent before.
-- One field shows that it does not.
local function make_drawn(id, item)
  local old = redis.pcall('HGET', record_key(id), 'call') and read(id, { 'due', 'left', 'args' })
  if old then return MADE_CREATED, due_of(id, old), old.state, old end
  write_new(id, item, item.due, item.fields)
  return MADE_CREATED, item.due, 'pending', item
end

-- Reads each task of ARGV by `read_one`, makes it by `make`, and returns the reply of make.lua.
local function make_each(read_one, make)
  local reply, at = { now }, 3
  while at <= #ARGV do
    local id, item, after = read_one(at)
    local code, due, state, task = make(id, item, ARGV[2])
    local rest = false
    if code ~= MADE_CREATED or state ~= 'pending' or task.args then
      rest = { code, task.call, state, task.args or false }
    end
    reply[#reply + 1] = due
    reply[#reply + 1] = trigger_key(id, task)
    reply[#reply + 1] = rest
    at = after
  end
  return reply
end
