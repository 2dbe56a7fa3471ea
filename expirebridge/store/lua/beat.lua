-- flags: allow-oom
-- Puts a watched task off by its own time to live: what is watched has given a sign of life.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id
-- returns  1 done, 2 rearmed, 4 finished, 5 not found, 6 not watched
--
-- It does what a plain `PEXPIRE <trigger key> <ttl>` does, and sets the key again where that would
-- answer 0. The score follows when somebody looks, as after any put-off. There is no nonce: a resend
-- is another beat.

-- include names
-- include clock
-- include format
-- include records
-- include timer_edits
-- include doorbell
-- include changes

local id = ARGV[2]
local record = read(id, { 'ttl', 'next' })
if not record then return NOT_FOUND end
if FINISHED[record.state] then return FINISHED_BEFORE end
if record.next then record.ttl = value_of(cmsgpack.unpack(record.next).fields, 'ttl') end
if not record.ttl then return NOT_WATCHED end
local due = now + record.ttl
if record.state == 'running' then
  note_rearm(id, record, due)
  return REARMED
end
set_timer(id, record, due)
if record.state == 'paused' or due < tonumber(redis.call('ZSCORE', state_set('pending'), id) or 0) then
  local before = earliest()
  move(id, record, 'pending', due)
  ring(due, before)
end
return DONE
