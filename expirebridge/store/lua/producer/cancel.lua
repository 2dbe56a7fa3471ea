-- flags: allow-oom
-- Cancels tasks: waiting ones at once; running ones are not attempted again.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 ms to keep a cancelled task, then ids
-- returns  for each id: 1 done, 3 running, 4 finished, 5 not found, 7 elsewhere
--
-- The reply to a heartbeat names cancelled tasks to their listener; the doorbell speeds that up.

-- include names
-- include clock
-- include records
-- include state_sets
-- include doorbell
-- include rearm
-- include changes

local nonce, keep = ARGV[2], tonumber(ARGV[3])
local running = false

local function cancel(id)
  local record, code = read_for_change(id, nonce, { 'nonce', 'due', 'left', 'next' })
  if not record then return code end
  if FINISHED[record.state] then return FINISHED_BEFORE end
  if record.state == 'running' then
    remember(id, record, nonce, RUNNING)
    cancel_run(id, record, keep)
    running = true
    return RUNNING
  end
  remember(id, record, nonce, DONE)
  redis.call('HSET', record_key(id), 'due', due_of(id, record))
  finish(id, record, 'cancelled', keep)
  redis.call('DEL', trigger_key(id, record))
  return DONE
end

local reply = {}
ring_after(function()
  for at = 4, #ARGV do reply[#reply + 1] = cancel(ARGV[at]) end
end, true)
if running then notify_listeners('beat') end
return reply
