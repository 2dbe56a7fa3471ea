-- flags: (none: refused whole when memory is full)
-- Decides a task that waits for a signal: it runs its other function, now.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 id, 4 digests of what the signal says, by each key, the first one's
--          first, with commas between them; '' if it is not sealed, 5 who sends it, or '', 6 what it says: JSON, or
--          sealed
-- returns  1 signalled: so is the same again, as long as the record is there; 3 running, 4 finished, 5 not found,
--          7 elsewhere, 10 another signal has decided, 11 its deadline has: an attempt has begun, 12 it waits for no
--          signal, 13 it is of a ledger, where its row decides
--
-- The first claim decides against the signal, not the clock: what waits for a slot, or on hold, can be signalled after its
-- deadline. One that was replaced while it runs has a successor: the signal is for that. A paused one stays paused.

-- include names
-- include clock
-- include producer_changes
-- include records
-- include ring
-- include deciding

local SIGNALLED_BEFORE, BEGUN, NOT_AWAITED, OF_LEDGER = 10, 11, 12, 13
local nonce, id, digests, by, payload = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if digests == '' then digests = redis.sha1hex(payload) end

-- True if this very signal has decided: webhooks come again, hours later.
local function is_same(signalled)
  local known, sender = string.match(signalled, '^%d+ (%S+) (.*)$')
  return known and sender == by and string.find(',' .. digests .. ',', ',' .. known .. ',', 1, true)
end

local record, code = read_for_change(id, nonce, { 'nonce', 'due', 'left', 'args', 'next', 'on_signal', 'passed', 'signalled',
  'token', 'started', 'attempt', 'settled' })
if not record then return code end
if record.ledger then return OF_LEDGER end
local successor = successor_of(record)
-- While a successor waits, who does not say who sends it may mean that.
if record.signalled and is_same(record.signalled) and not (successor and by == '') then return DONE end
local signalled, on_signal, passed = record.signalled, func_in(record.on_signal), record.passed
if successor then
  signalled, on_signal = value_of(successor.fields, 'signalled'), func_in(value_of(successor.fields, 'on_signal'))
  passed = value_of(successor.fields, 'passed')
end
if signalled then return is_same(signalled) and DONE or SIGNALLED_BEFORE end
if not on_signal and not passed then return NOT_AWAITED end
if not successor then
  if record.state == 'running' then return RUNNING end
  if FINISHED[record.state] then return FINISHED_BEFORE end
  -- A claim leaves `on_signal` where it is if `meta` was lost, which says that there are signals. With the attempt 0 alone the
  -- task was due in another database; one that was given back has that, too, and a claim that was settled.
  passed = passed or record.token or record.started or record.attempt and (record.attempt ~= '0' or record.settled)
end
if passed then return BEGUN end
return ring_after(function()
  decide(id, record, payload, string.format('%.0f %s %s', now, string.match(digests, '^[^,]*'), by))
  remember(id, record, nonce, DONE)
  redis.pcall('HINCRBY', own_key('signals'), 'signalled', 1)
  return DONE
end)
