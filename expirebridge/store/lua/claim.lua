-- flags: allow-oom
-- Claims due tasks for a listener: the one step that decides who runs what, and that it is time.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 token (the nonce of this claim), 3 lease in ms, 4 room (most tasks to
--          take), 5 most bytes of calls and arguments to take, 6 '1' if the listener runs nothing
--          at present, 7 ms to keep a failed task, 8 '1' if this is a resend
-- returns  now in microseconds, the ms at which the next task is due (-1: none),
--          1 if nothing may be claimed until the listener is idle, because a task waits to be
--          claimed alone, or was; ids whose records are missing or broken, then
--          for each task:
--          '<id> <due> <attempt> <lapses> <made>', trigger key, and nil, or what most tasks lack:
--          {call (if another name than the id's own is the trigger key's), and the first RARE of
--          FIELDS}
--
-- A client's time depends most on the number of parts in a reply: there are three for each task.
-- The timer of a due id may still run: then a client put it off, and only its score moves.

-- include names
-- include clock
-- include records
-- include timers
-- include places
-- include strays
-- include timer_edits

local token, lease, room, max_bytes = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local idle, keep_failed, resend = ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8] == '1'

-- After so many lapses a task may be what kills its listeners: nothing else may die with it.
local LAPSES_UNTIL_ALONE = 2
-- The rare ones first, as they stand in the reply: after the policies those of store/fields.py.
local RARE = 6
local FIELDS = { 'args', 'retry', 'timeout', 'misfire', 'trace', 'tags',
  'attempt', 'lapses', 'made', 'token', 'due' }
local FIRST, LAST = 4, 3 + RARE -- of what `read` gives beside a record

local reply = { now_us, -1, 0, {} }
local broken = reply[4]
local bytes, count, alone = 0, 0, false

local function add(id, record, values, due, attempt)
  -- By their places, not by their names, which costs a claim more.
  local rare = record.key or false
  for i = FIRST, LAST do rare = rare or values[i] end
  if rare then rare = { record.key and record.call or false, unpack(values, FIRST, LAST) } end
  reply[#reply + 1] = string.format('%s %.0f %.0f %.0f %.0f', id, due, attempt,
    tonumber(record.lapses) or 0, tonumber(record.made) or -1)
  reply[#reply + 1] = trigger_key(id, record)
  reply[#reply + 1] = rare
  count = count + 1
  bytes = bytes + #record.call + #(record.args or '')
end

local function take(id, record, values, due)
  local attempt = (tonumber(record.attempt) or 0) + 1
  -- In its due millisecond the key still lives: to put it off now would seem to succeed.
  redis.call('DEL', trigger_key(id, record))
  move(id, record, 'running', now + lease,
    { 'token', token, 'attempt', attempt, 'due', due, 'started', now })
  add(id, record, values, due, attempt)
end

local function is_poison(record) return (tonumber(record.lapses) or 0) >= LAPSES_UNTIL_ALONE end

local function look_at(id, due)
  local record, values
  if is_id(id) then record, values = read(id, FIELDS) end
  if not record then
    broken[#broken + 1] = id
    return set_aside(id, 'pending', keep_failed)
  end
  if strayed(id, record, 'pending', keep_failed) then return end
  local poison = is_poison(record)
  if poison and (not idle or count > 0) then
    reply[3] = 1
    return
  end
  local timer = read_timer(id, record)
  if timer then
    follow_timer(id, record)
  else
    take(id, record, values, due)
    alone = poison
    if poison then reply[3] = 1 end
  end
end

local function find_own()
  for _, id in ipairs(redis.call('ZRANGE', state_set('running'), 0, -1)) do
    local record, values = read(id, FIELDS)
    if record and record.token == token then
      add(id, record, values, tonumber(record.due), tonumber(record.attempt))
      if is_poison(record) then reply[3] = 1 end
    end
  end
end

if resend then find_own() end
if count == 0 and room > 0 then
  local ids = redis.call('ZRANGEBYSCORE', state_set('pending'), '-inf', now, 'WITHSCORES', 'LIMIT', 0,
    room)
  for i = 1, #ids, 2 do
    if bytes >= max_bytes or alone then break end
    look_at(ids[i], tonumber(ids[i + 1]))
  end
end

local first = redis.call('ZRANGE', state_set('pending'), 0, 0, 'WITHSCORES')
if first[2] then reply[2] = tonumber(first[2]) end
return reply
