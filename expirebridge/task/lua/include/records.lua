-- include names
-- include format
-- gives STATES, FINISHED, LATE_EVENTS, ASIDE, RUN_FIELDS, NONE, is_id, number_up_to, read, all_fields, value_of, take_value
-- gives put_value, is_erased

-- A record has few fields while its task is pending, since there may be millions:
--   call     <func>?<args>, the trigger key's name after `<id>:?`
--   made     when it was made, in seconds
-- and only if needed:
--   args     the arguments, if `call` ends in `@`
--   key      the trigger key's name, if it is not <id>:?<call> (some foreign keys)
--   nonce    `<code>:<nonce>` of the last three calls that made or changed it, to recognize a
--            resend; absent after a make with an id drawn at random
--   tags, retry, timeout, misfire   as the producer gave them
--   trace    the producer's place in a trace: a W3C traceparent
--   ttl      of a watched task: how many ms each beat puts it off by
--   tick     of a task of a series: the ms for which it stands, a space, and the ms at which the next
--            tick is due, if there is one
--   first    of a task put off with a limit: when that began, in ms
--   state    absent while pending
--   token    the nonce of the claim that runs it, or ran it last
--   settled  the token of the last settled attempt, if the task has been pending since
--   due      when the present or last run was due, in ms (while pending, see the score)
--   attempt, lapses, started, ended, result, error, unknown   what happened to it
--   unfit    fingerprints of codes whose listeners refused it, and left it to others
--   rearm    when it is to run once more, if asked while it ran
--   next     its successor after this run, if it was replaced while it ran (see rearm.lua); `ended` is its state
--            if it has ended before it started
--   snoozes  how often its handler put it off by Snooze since it was made
--   cancel   1 if it was cancelled while it ran: no further attempt
--   asked    while the database is moved: the producer's `if_exists` for the other database
--   ledger   of a task of a ledger: the generation and the revision of its row, see ledger.lua
--   early    of one that came before the batch of its row: when that was, in ms, until the batch comes; see
--            send_early.lua
--   history  earlier changes and attempts, see history.lua
--   left     while paused: the ms that were left until it was due
--   slots    of a task with limits: the lanes in which it has a slot, one a line: see lanes.lua
--   queue    while it waits for a slot: the lane
--   tenant   and whose turn it waits for, if that is fair; on hold, its ordered lane
--   turn     of one that had its turn in the lane of a rate, and did not start: the arrival for which it was charged,
--            or -, and the lane, see admission.lua
--   parked   since when, in ms
--   waited   how many ms it has waited for slots since it was due; and after a space, how many of them it was on hold
--   after    of a follow-up: the id of the task whose handler returned it
--   then     of a task that succeeded: the id of its follow-up
--   late     of an attempt that ended, and had begun late: how many ms, the cause, and its `started`
local STATES = { 'pending', 'waiting', 'paused', 'running', 'succeeded', 'failed', 'cancelled' }
local FINISHED = { succeeded = true, failed = true, cancelled = true }
-- Least time in ms that a finished record is kept: late events of its key must find it.
local LATE_EVENTS = 15000
-- A cancelled record that is here for such events alone has a score that is lower by this than its time of deletion, far
-- below all others: it is not counted.
local ASIDE = 2 ^ 43

-- The fields that only runs write: a new generation has none of them.
local RUN_FIELDS = { 'token', 'settled', 'due', 'attempt', 'lapses', 'started', 'ended', 'result',
  'error', 'unknown', 'unfit', 'rearm', 'next', 'cancel', 'first', 'snoozes', 'waited', 'then',
  'late', 'turn' }

-- An empty list, which nobody changes.
local NONE = {}

-- True if the text can be an id: other clients can put anything into a state set, or into the name of a record. The
-- length is checked when an id is made.
local function is_id(id) return string.find(id, '^[%w_.:@-]+$') ~= nil end

-- A number from a record, at least 0 and at most `most`; nil if there is none. Another client may have written NaN
-- there, which no set takes as a score: the script would fail each time.
local function number_up_to(most, text)
  local number = tonumber(text or nil)
  return number and number == number and math.max(math.min(number, most), 0) or nil
end

-- The successor of a running task, from its record; nil if another client overwrote it.
local function read_next(packed)
  local well, task = pcall(cmsgpack.unpack, packed)
  well = well and type(task) == 'table' and type(task.call) == 'string'
    and type(task.due) == 'number' and task.due >= 0 and task.due < 2 ^ 53
    and type(task.fields) == 'table' and #task.fields % 2 == 0 and #task.fields <= 100
    and (task.ended == nil or FINISHED[task.ended] and type(task.keep) == 'number')
  for _, field in ipairs(well and task.fields or {}) do
    well = well and (type(field) == 'string' or type(field) == 'number')
  end
  return well and task or nil
end

-- The arguments of a task that were erased: see expirebridge/task/keys.py. It cannot run.
local ERASED = '?{"erased":true}'
local function is_erased(record) return string.sub(record.call, -#ERASED) == ERASED end

-- The fields `names` of a record as a table; nil if there is no record of that id, or another client
-- overwrote it. Beside it, the values of `call`, `state`, `key` and those fields by their places, false
-- where there is none.
local function read(id, names)
  -- In plain use there is no ledger: it is not asked for.
  local values, ledger
  if plain then
    values = redis.pcall('HMGET', record_key(id), 'call', 'state', 'key', unpack(names or {}))
  else
    values = redis.pcall('HMGET', record_key(id), 'ledger', 'call', 'state', 'key', unpack(names or {}))
    if not values.err then ledger = table.remove(values, 1) end
  end
  if values.err or not values[1] then return nil end
  local record = { call = values[1], state = values[2] or 'pending', key = values[3] }
  if ledger then record.ledger = ledger end
  -- A nil that is assigned to a new name makes the table grow, too.
  for i = 4, #values do
    if values[i] then record[names[i - 3]] = values[i] end
  end
  if record.next then record.next = read_next(record.next) end
  return record, values
end

-- The names of a script's own fields, with those that others add: once they are added.
local function all_fields(own, added)
  for i = 1, #added do
    for _, name in ipairs(added[i]) do own[#own + 1] = name end
    added[i] = nil
  end
  return own
end

-- The value of one field in a list of names and values, as producers send them.
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return nil
end

local function take_value(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      table.remove(fields, i)
      return table.remove(fields, i)
    end
  end
  return nil
end

local function put_value(fields, name, value)
  for i = 1, #fields, 2 do
    if fields[i] == name then
      fields[i + 1] = value
      return
    end
  end
  fields[#fields + 1] = name
  fields[#fields + 1] = value
end
