-- flags: allow-oom
-- Cancels a task that waits.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 id, 3 nonce of this call, 4 ms to keep the cancelled task
-- returns  1 cancelled, 2 running, 3 finished, 4 not found
--
-- The nonce becomes the token, by which a resend knows its own work.

-- include names
-- include clock
-- include format
-- include records

local id, nonce = ARGV[2], ARGV[3]
local CANCELLED, RUNNING, FINISHED_BEFORE, NOT_FOUND = 1, 2, 3, 4

local record = read(id, { 'token' })
if not record then return NOT_FOUND end
if record.token == nonce and record.state == 'cancelled' then return CANCELLED end
if FINISHED[record.state] then return FINISHED_BEFORE end
if record.state == 'running' then return RUNNING end

local due = redis.call('ZSCORE', state_set(record.state), id) or now
redis.call('HSET', record_key(id), 'token', nonce, 'due', due)
finish(id, record, 'cancelled', tonumber(ARGV[4]))
redis.call('DEL', trigger_key(id, record))
return CANCELLED
