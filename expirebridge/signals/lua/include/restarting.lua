-- include format
-- include hooks
-- include names
-- when signals
-- on on_again 60 keep_decision

-- What restarts a task that was not signalled, restarts the function of its deadline.
local function keep_decision(id)
  local on_signal = redis.call('HGET', record_key(id), 'on_signal')
  if not on_signal then return end
  redis.call('HSET', record_key(id), 'passed', on_signal)
  redis.call('HDEL', record_key(id), 'on_signal')
end
