-- include format
-- include hooks
-- include names
-- when signals
-- on claim_fields 60 CLAIM_FIELDS
-- on on_reply 60 tell_signal
-- on on_take 60 note_passed
-- on before_taken 60 count_passed

-- The first claim of a task decides that its signal did not come in time, whatever becomes of the attempt.
local CLAIM_FIELDS = { 'on_signal', 'passed', 'lost', 'signal', 'signalled' }
local passed = 0

-- What a listener needs to open the arguments, and the signal.
local function tell_signal(record)
  local told
  for _, name in ipairs(CLAIM_FIELDS) do
    if record[name] then
      told = told or {}
      told[#told + 1], told[#told + 2] = name, record[name]
    end
  end
  return told
end

local function note_passed(_, record, set, gone)
  if not record.on_signal then return end
  set[#set + 1], set[#set + 2] = 'passed', record.on_signal
  gone[#gone + 1] = 'on_signal'
  passed = passed + 1
end

local function count_passed()
  if passed > 0 then redis.pcall('HINCRBY', own_key('signals'), 'passed', passed) end
  passed = 0
end
