-- include names
-- include clock
-- gives note, note_move, note_attempt, note_end

-- The field `history` of a record: each change of the due time, and each attempt but the last. A task that was only
-- made, or ran once, does not have it. One line for each:
--   <ms> <what> <old due> <new due> <times>            '-' where there was none: paused, or running
--   <ms> <how it ended> <attempt> <started> <times> <the last line of its error>
-- Repeated entries are one line with their number: keepalives, and attempts that were snoozed or whose function is
-- unknown. A history that is longer than LONGEST was written by another client: only its end is kept.
local PUTS_OFF = { edit = true, extend = true, beat = true }

local function number_or_dash(value) return value and string.format('%.0f', value) or '-' end

-- The lines, without the last if the new one repeats it; and the new one's values.
local function merged(lines, what, first, second)
  local last = string.match(lines, '^.*\n([^\n]*\n)$') or lines
  local known, old, new, times = string.match(last, '^%d+ (%S+) (%S+) (%S+) (%d+)')
  if known ~= what then return lines, first, 1 end
  local again = what == 'unknown' or what == 'snoozed'
  if PUTS_OFF[what] and second and tonumber(new) then
    if first and tonumber(old) then
      again = second >= first and tonumber(new) >= tonumber(old)
      first = again and tonumber(old) or first
    else
      again = not first and old == '-' and second >= tonumber(new)
    end
  end
  if not again then return lines, first, 1 end
  return string.sub(lines, 1, -#last - 1), first, times + 1
end

local function note(id, what, first, second, text, at)
  local MOST_LINES, LONGEST_TEXT, LONGEST = 20, 200, 8192
  local lines = redis.call('HGET', record_key(id), 'history') or ''
  if #lines > LONGEST then lines = string.match(string.sub(lines, -LONGEST), '\n(.*)') or '' end
  local times
  lines, first, times = merged(lines, what, first, second)
  local line = { string.format('%.0f', at or now), what, number_or_dash(first), number_or_dash(second),
    string.format('%d', times) }
  if text and text ~= '' then
    line[6] = string.sub(string.match(text, '^.*\n(.*)') or text, 1, LONGEST_TEXT)
  end
  lines = lines .. table.concat(line, ' ') .. '\n'
  if select(2, string.gsub(lines, '\n', '')) > MOST_LINES then
    lines = string.gsub(lines, '^[^\n]*\n', '')
  end
  redis.call('HSET', record_key(id), 'history', lines)
end

-- Notes a new due time of an unfinished task, before it is set: nil if it is paused.
local function note_move(id, record, what, due)
  note(id, what, record.state == 'pending' and due_of(id, record) or nil, due)
end

-- Notes how the last attempt ended, before another one overwrites its fields.
local function note_attempt(id, how, text)
  local run = redis.call('HMGET', record_key(id), 'attempt', 'started')
  if run[2] then note(id, how, tonumber(run[1]), tonumber(run[2]), text) end
end

-- Notes how a finished task ended, before it runs again.
local function note_end(id, state)
  local run = redis.call('HMGET', record_key(id), 'attempt', 'started', 'error', 'ended')
  note(id, state, tonumber(run[1]), tonumber(run[2]), run[3], tonumber(run[4]))
end
