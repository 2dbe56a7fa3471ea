-- include format
-- include clock
-- include state_sets
-- include ring
-- gives wait_until, ring_after

-- Makes a task pending until `due`, and sets its timer.
local function wait_until(id, record, due)
  set_timer(id, record, due)
  move(id, record, 'pending', due)
end

-- Makes a change, gives the slots that it freed to those who wait for them, and rings the doorbell if it has made a
-- task the earliest; `move` and `write` note the `soonest`. If none of the changed tasks was pending before, one look
-- afterwards is enough, and only if one is pending now.
local function ring_after(change, none_waited)
  local first = not none_waited and first_pending()
  local reply = change()
  run_at_end()
  if none_waited then
    ring_if_first()
  elseif soonest < first then
    notify_listeners(string.format('%.0f', soonest))
  end
  return reply
end
