-- flags: allow-oom
-- Cancels tasks: waiting ones at once; running ones are not attempted again.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 ms to keep a cancelled task, then ids
-- returns  for each id: 1 done, 3 running, 4 finished, 5 not found, 7 elsewhere
--
-- The reply to a heartbeat names cancelled tasks to their listener; the doorbell speeds that up.

-- include ring
-- include cancelling

local reply = {}
ring_after(function()
  for at = 4, #ARGV do reply[#reply + 1] = cancel_task(ARGV[at], ARGV[2], tonumber(ARGV[3])) end
end, true)
if cancelled_running then notify_listeners('beat') end
return reply
