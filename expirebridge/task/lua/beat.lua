-- flags: allow-oom
-- Puts a watched task off by its own time to live.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  1 done, 2 rearmed, 4 finished, 5 not found, 6 not watched, 7 elsewhere
--
-- It does what a plain `PEXPIRE <trigger key> <ttl>` does, and sets the key again if that would
-- answer 0. The score is updated when a listener claims, as after any put-off. There is no nonce: a resend
-- is another beat.

-- include names
-- include format
-- include clock
-- include records
-- include history
-- include rearm
-- include producer_changes
-- include hooks
-- include ring
-- include state_sets

local id = ARGV[2]
local record = read(id, { 'ttl', 'next' })
for i = 1, #on_change do
  local answer = on_change[i](id, record)
  if answer then return answer end
end
if not record then return NOT_FOUND end
if FINISHED[record.state] then return FINISHED_BEFORE end
if record.next then record.ttl = value_of(record.next.fields, 'ttl') end
local ttl = number_up_to(LATEST, record.ttl)
if not ttl then return NOT_WATCHED end
local due = now + ttl
if record.state == 'running' then
  note_move(id, record, 'beat', due)
  note_rearm(id, record, due)
  return REARMED
end
local score = tonumber(redis.call('ZSCORE', state_set('pending'), id))
if record.state ~= 'pending' or (score and due < score) then
  note_move(id, record, 'beat', due)
  ring_after(function() wait_until(id, record, due) end)
else
  set_timer(id, record, due)
end
return DONE
