-- expirebridge_make 1 <prefix> <func> <args> <when> [id <id>] [if_exists <what>] [window <seconds>]
-- [tags <tags>] [retry <delays>] [timeout <seconds>] [on_signal <func>] [urgent 1]
--
-- Makes a task: record, place and timer, all or nothing.
--
-- returns  outcome ('created', 'kept', 'exists', 'replaced', 'extended' or 'differs'), id, trigger
--          key, due in ms; or of a member that its group does not take 'no group' or 'closed', id
local IF_EXISTS = { reject = true, keep = true, replace = true, extend = true }
local OUTCOMES = { 'created', 'kept', 'exists', 'replaced', 'extended', 'differs', 'no group', 'closed', 'exists' }
-- Of these, no task has the id.
local NO_MEMBER = { ['no group'] = true, closed = true }
-- The record's fields that a caller can give, and how each is checked.
local FIELDS = {
  tags = check_tags,
  retry = check_retry,
  timeout = function(seconds) return check_seconds('timeout', seconds) end,
  on_signal = function(other, func)
    if other == func then refuse('on_signal=' .. short(other) .. ': it is the function that runs at the deadline') end
    return check_func(other, 'on_signal')
  end,
  urgent = function(value) return value == '1' and value or refuse('urgent=' .. short(value) .. ': write 1') end,
}

local LONGEST_WINDOW = 3600 -- seconds: then a finished task is forgotten

local function add_window(options)
  if options.if_exists ~= 'keep' or not options.id then
    refuse('window: it goes with if_exists keep, and an id')
  end
  local seconds = tonumber(check_seconds('window', options.window))
  if seconds > LONGEST_WINDOW then refuse('window: at most ' .. LONGEST_WINDOW .. ' seconds') end
  options.fields[#options.fields + 1] = 'window'
  options.fields[#options.fields + 1] = math.ceil(seconds * 1000)
end

local function read_options(given, usage)
  local options = { if_exists = 'reject', fields = {} }
  for at = 4, #given, 2 do
    local name, value = string.lower(given[at]), given[at + 1]
    if not value then refuse('write: ' .. usage) end
    if name == 'id' then
      options.id = check_id(value)
    elseif name == 'if_exists' then
      if not IF_EXISTS[value] then
        refuse('if_exists=' .. short(value) .. ': one of reject, keep, replace, extend')
      end
      options.if_exists = value
    elseif name == 'window' then
      options.window = value
    elseif FIELDS[name] then
      if value ~= '' then
        options.fields[#options.fields + 1] = name
        options.fields[#options.fields + 1] = FIELDS[name](value, given[1])
      end
    else
      refuse(short(name) .. ' is no option; there are id, if_exists, window, tags, retry, timeout, on_signal, urgent')
    end
  end
  if options.window then add_window(options) end
  if options.if_exists ~= 'reject' and not options.id then
    refuse('if_exists=' .. options.if_exists .. ': it goes with an id')
  end
  return options
end

local function read_arguments(given, usage)
  check_count(given, 3, 19, usage)
  local func, args = check_func(given[1]), check_args(given[2])
  local kind, ms = check_when(given[3])
  local options = read_options(given, usage)
  local fields = options.fields
  if #args > MAX_ARGS_IN_KEY then
    fields[#fields + 1], fields[#fields + 2] = 'args', args
    args = '@'
  end
  return { '', '', options.id or draw_id(), '0', options.if_exists, func .. '?' .. args, kind, ms,
    #fields / 2, unpack(fields) }
end

local function tell(reply, argv)
  local due, name, rest = reply[2], reply[3], reply[4]
  local code = rest and rest[1] or 1
  if NO_MEMBER[OUTCOMES[code]] then return { OUTCOMES[code], argv[3] } end
  return { OUTCOMES[code], argv[3], name, due }
end
