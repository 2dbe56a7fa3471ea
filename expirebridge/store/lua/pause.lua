-- flags: (none: refused whole when memory is full)
-- Pauses tasks that wait: their timers lose their ends, and the time that was left is kept.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, then ids
-- returns  for each id: 1 done, 3 running, 4 finished, 5 not found

-- include names
-- include clock
-- include format
-- include records
-- include history
-- include resends
-- include timer_edits
-- include changes

local nonce = ARGV[2]

local function pause(id)
  local record = read(id, { 'nonce' })
  if not record then return NOT_FOUND end
  local done_before = answered(record, nonce)
  if done_before then return done_before end
  if FINISHED[record.state] then return FINISHED_BEFORE end
  if record.state == 'running' then return RUNNING end
  if record.state == 'pending' then
    remember(id, record, nonce, DONE)
    note_move(id, record, 'pause', nil)
    redis.call('HSET', record_key(id), 'left', math.max(due_of(id, record) - now, 0))
    redis.call('SET', trigger_key(id, record), 0)
    move(id, record, 'paused', now + PAUSED_LOOK)
  end
  return DONE
end

local reply = {}
for at = 3, #ARGV do reply[#reply + 1] = pause(ARGV[at]) end
return reply
