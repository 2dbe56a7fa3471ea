-- flags: allow-oom
-- Records the outcomes of attempts, each fenced by the token of its claim.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 ms to keep a succeeded task, 3 ms to keep a failed one, 4 fingerprint of the
--          listener's code, or '', 5 how many tasks it claims next without being told, then for each attempt:
--          '<id> <token> <outcome> <delay in ms>', text; and where there is one, '-' for none before:
--          ' <told> <by how many ms it began late> <cause> <objective>': the last is + if it was kept, or -, and ms
--          outcomes: 'succeeded' (text: the result), 'retry' and 'failed' (text: the error),
--          'snoozed' (uncounted; due after the delay; text: why),
--          'busy' (the same; what is told has the names of rates, in whose lanes nothing starts before then),
--          'released' (uncounted; due as before, or after the delay; text: why),
--          'unbegun' (the same; its handler was not called),
--          'unknown' (as 'released', and failed when no listener has had the function for 24 h),
--          'unfit' (failed: the arguments do not fit the function)
-- returns  a code for each attempt: 1 done, 2 refused, 3 left to others instead of failed, 4 failed
--          instead of a retry: the next tick of its series is due by then; and last, 5 if slots were freed and
--          granted to tasks that this listener is to claim
--
-- A client's time depends most on the number of arguments: there are two for each attempt.

-- include tally
-- include settlement
-- include format
-- include ring

-- If the fleet runs several codes, this one may lack the functions of those that wait.
if not string.find(fleet_code or '', ' ', 1, true) then claims_next = tonumber(ARGV[5]) end

local reply = ring_after(function()
  local reply, items = {}, {}
  for at = 6, #ARGV, 2 do items[#items + 1] = read_item(at) end
  local none_has_timer = has_no_timer(items)
  for i, item in ipairs(items) do reply[i] = settle(item, ARGV[5 + 2 * i], none_has_timer) end
  write_succeeded()
  write_tally()
  return reply
end, true)
if ready_now > 0 and ready_now <= claims_next then reply[#reply + 1] = SETTLED.ready end
return reply
