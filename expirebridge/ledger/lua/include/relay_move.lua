-- include names
-- include clock
-- include records
-- include history
-- include timer_edits
-- include rearm
-- include relay_end
-- include relay_create
-- include state_sets
-- gives follow_row

-- Restores the due time of a pending task from its row. A timer that differs from the score was moved by a
-- client whose event was missed: it counts. A task that an earlier, interrupted batch has delayed keeps that
-- time: this batch repeats the row. One that is in no set gets its place there, at the timer's time, or the row's.
local function restore_time(id, row, old)
  local timer = read_timer(id, old)
  local score = tonumber(redis.call('ZSCORE', state_set('pending'), id))
  if timer and not score then return follow_timer(id, old) end
  if timer == 'none' or timer and timer ~= score then return end
  local known = row.due
  delay_rebuilt(row)
  if score and score > now and score >= known then row.due = math.min(row.due, score) end
  old.is_alive = true -- the row has this time already
  wait_until(id, old, row.due)
end

-- Gives a task the row's due time; a finished one starts anew, a running one runs again.
local function follow_time(id, row, old)
  delay_rebuilt(row)
  if FINISHED[old.state] then start_anew(id, old) end
  note_move(id, old, 'reschedule', row.due)
  if old.state == 'running' then
    note_rearm(id, old, row.due)
  else
    wait_until(id, old, row.due)
  end
end

-- Pauses a task whose row is paused. Of a running task, a timer without a TTL notes that.
local function follow_pause(id, old, is_new)
  if FINISHED[old.state] then
    if not is_new then return end
    start_anew(id, old)
  end
  if old.state == 'running' and not is_new then return end
  redis.call('SET', trigger_key(id, old), 0)
  if old.state ~= 'running' then follow_timer(id, old) end
end

-- Restores what this database may have lost of a task that it still has: its due time, or that it is paused. If
-- the row's revision is new, its time is new, too.
local function restore_row(id, row, old, is_new)
  if row.when == 'never' then
    follow_pause(id, old, is_new)
  elseif row.when ~= 'at' then
    return
  elseif old.state == 'pending' then
    restore_time(id, row, old)
  elseif old.state == 'paused' or is_new then
    follow_time(id, row, old)
  elseif old.state == 'running' then
    redis.call('HSET', record_key(id), 'due', row.due) -- used if its lease lapses: the row may wait for another run
  end
end

-- Applies a row of the same generation to its task.
local function follow_row(id, row, old, is_new)
  if row.what == 'cancel' then
    if not FINISHED[old.state] then cancel_from_row(id, old) end
  elseif is_new and row.moved then
    follow_time(id, row, old)
  elseif row.rebuilt then
    restore_row(id, row, old, is_new)
  end
end
