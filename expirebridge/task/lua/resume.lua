-- flags: (none: refused whole when memory is full)
-- Resumes paused tasks: each is due when its remaining time has passed.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 nonce of this call, 3 '1' to leave follow-ups paused whose groups have not ended, then ids
-- returns  for each id: 1 done, 3 running, 4 finished, 5 not found, 7 elsewhere, 9 left paused
--
-- If another client gave a timer an end meanwhile, that is its task's due time.

-- include clock
-- include history
-- include producer_changes
-- include hooks
-- include ring
-- include state_sets

local nonce, spares = ARGV[2], ARGV[3] == '1'

local function resume(id, record)
  if record.state == 'paused' then
    for i = 1, spares and #kept_paused or 0 do
      if kept_paused[i](id) then return LEFT_PAUSED end
    end
    remember(id, record, nonce, DONE)
    local timer = read_timer(id, record)
    local due = type(timer) == 'number' and timer or due_of(id, record)
    note_move(id, record, 'resume', due)
    wait_until(id, record, due)
  end
  return DONE
end

return ring_after(function() return change_waiting(4, nonce, { 'nonce', 'left' }, resume) end)
