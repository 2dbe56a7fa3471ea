-- include names
-- include format
-- include records
-- include hooks
-- gives answered, remember, DONE, REARMED, RUNNING, FINISHED_BEFORE, NOT_FOUND, NOT_WATCHED, ELSEWHERE, WAITING
-- gives LEFT_PAUSED, read_for_change, change_waiting

-- A call whose reply was lost is sent again. If the record has its nonce, it was done before, and gets
-- the same answer. Without a nonce, '', a resend is not recognized.
local function answered(record, nonce)
  for word in string.gmatch(record and record.nonce or '', '%S+') do
    local code, known = string.match(word, '^(%d+):(.*)')
    if known == nonce then return tonumber(code) end
  end
end

-- Others may change the task before the resend arrives, so the two calls before this one, which
-- `record` holds, are kept. More would cost memory: a value does from 65 bytes on.
local function remember(id, record, nonce, code)
  if nonce == '' then return end
  local before = string.match(record and record.nonce or '', '^%S* ?%S*')
  if before ~= '' then before = ' ' .. before end
  redis.call('HSET', record_key(id), 'nonce', code .. ':' .. nonce .. before)
end

-- The result of a change that a producer asked for.
local DONE, REARMED, RUNNING, FINISHED_BEFORE, NOT_FOUND, NOT_WATCHED = 1, 2, 3, 4, 5, 6
local ELSEWHERE, WAITING, LEFT_PAUSED = 7, 8, 9

-- The record of a task to change; or nil and the answer. A resend gets the first answer.
local function read_for_change(id, nonce, fields)
  local record = read(id, fields)
  for i = 1, #on_change do
    local answer = on_change[i](id, record)
    if answer then return nil, answer end
  end
  if not record then return nil, NOT_FOUND end
  local done_before = answered(record, nonce)
  if done_before then return nil, done_before end
  return record
end

-- Answers for each id from ARGV[first] on. `change` is called only for tasks that wait.
local function change_waiting(first, nonce, fields, change)
  local function answer(id)
    local record, code = read_for_change(id, nonce, fields)
    if not record then return code end
    if FINISHED[record.state] then return FINISHED_BEFORE end
    if record.state == 'running' then return RUNNING end
    return change(id, record)
  end

  local reply = {}
  for at = first, #ARGV do reply[#reply + 1] = answer(ARGV[at]) end
  return reply
end
