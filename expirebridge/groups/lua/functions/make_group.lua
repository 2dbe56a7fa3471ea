-- expirebridge_make_group 1 <prefix> <name> [then <func> <args>] [delay <ms>] [on_failed <what>]
--
-- Makes an open group, and its follow-up, which is due `delay` ms after its last member has ended.
--
-- returns  'made', 'there' (it was made by the same call), 'differs' (by another one), or 'taken' (an unfinished task has
--          the follow-up's id)
local ON_FAILED = { wait = true, run = true, cancel = true }
local WORDS_OF_CODES = { 'made', 'there', 'differs', 'taken' }

local function read_options(given, usage)
  local options, at = { on_failed = 'wait' }, 2
  while given[at] do
    local name, value = string.lower(given[at]), given[at + 1]
    if not value then refuse('write: ' .. usage) end
    if name == 'then' then
      if not given[at + 2] then refuse('write: ' .. usage) end
      options.func, options.args = check_func(value), check_args(given[at + 2])
      at = at + 1
    elseif name == 'delay' then
      local kind, ms = check_when(value)
      if kind == 'at' then refuse('delay=' .. short(value) .. ': write milliseconds from its last member\'s end') end
      options.delay = ms
    elseif name == 'on_failed' then
      if not ON_FAILED[value] then refuse('on_failed=' .. short(value) .. ': one of wait, run, cancel') end
      options.on_failed = value
    else
      refuse(short(name) .. ' is no option; there are then, delay, on_failed')
    end
    at = at + 2
  end
  if options.delay and not options.func then refuse('delay: it goes with then') end
  return options
end

local function read_arguments(given, usage)
  check_count(given, 1, 8, usage)
  local name, options = check_group(given[1]), read_options(given, usage)
  if not options.func then return { '', name, options.on_failed, redis.sha1hex(options.on_failed), 0 } end
  local delay, call = options.delay or '0', options.func .. '?' .. options.args
  local definition = redis.sha1hex(options.on_failed .. ' ' .. delay .. ' ' .. call)
  local fields = {}
  if #options.args > MAX_ARGS_IN_KEY then
    call, fields = options.func .. '?@', { 'args', options.args }
  end
  return { '', name, options.on_failed, definition, 0, name .. '@then', '0', 'reject', call, 'in', delay, #fields / 2,
    unpack(fields) }
end

local function tell(reply) return WORDS_OF_CODES[reply[1]] end
