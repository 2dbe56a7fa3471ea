-- Checks the arguments of the functions, as Python checks those of its own callers. A check raises
-- a table with the text of the error, before anything is written.
local LONGEST = 100 * 365 * 86400 * 1000
local MAX_ARGS, MAX_ARGS_IN_KEY, MAX_FUNC = 65536, 512, 200

local function refuse(words) error({ refused = words }, 0) end

local function short(text)
  text = string.gsub(text, '[%c\127-\255]', '?')
  return #text <= 60 and text or string.sub(text, 1, 57) .. '...'
end

local function check_count(given, least, most, usage)
  if #given < least or #given > most then refuse('write: ' .. usage) end
end

-- The tag of the prefix that is called with, and how many partitions its database has.
local tag, partitions = '', 1

local function find_partition(prefix)
  tag, partitions = string.match(prefix, '^{([^{}]*)}') or '', 1
  if tag == '' then return end
  local stored = redis.pcall('HGET', prefix .. ':meta', 'partitions')
  partitions = type(stored) == 'string' and tonumber(stored) or 1
end

-- The partition of an id: that of the slot which CLUSTER KEYSLOT gives for it up to its first `@`.
local function partition_of(id)
  local crc = 0
  for at = 1, #(string.match(id, '^[^@]*')) do
    crc = bit.bxor(crc, bit.lshift(string.byte(id, at), 8))
    for _ = 1, 8 do
      local bits = bit.lshift(crc, 1)
      crc = bit.band(crc, 32768) == 0 and bits or bit.bxor(bits, 4129)
    end
    crc = bit.band(crc, 65535)
  end
  return math.floor(crc % 16384 * partitions / 16384)
end

local function check_partition(what, id)
  if partitions > 1 and partition_of(id) ~= partition_of(tag) then
    refuse(what .. '=' .. short(id) .. ': it belongs to another partition than the prefix; `expirebridge key '
      .. 'ID FUNC ARGS` shows the tag')
  end
  return id
end

local function check_id(id)
  if #id > 128 or not string.find(id, '^[%w_.:@-]+$') then
    refuse('id=' .. short(id) .. ': an id has 1 to 128 characters from A-Z a-z 0-9 and _ . : @ -')
  end
  return check_partition('id', id)
end

local function check_group(name)
  if #name > 100 or not string.find(name, '^[%w_.:-]+$') then
    refuse('group=' .. short(name) .. ': a group\'s name has 1 to 100 characters from A-Z a-z 0-9 and _ . : -')
  end
  return check_partition('group', name)
end

local function check_func(func, what)
  local path, name = string.match(func, '^(.*/)([^/]*)$')
  local legal = #func <= MAX_FUNC and string.find(name or func, '^[%a_][%w_]*%.[%a_][%w_]*$')
    and not string.find('/' .. (path or ''), '//', 1, true)
  for part in string.gmatch(path or '', '[^/]+') do
    legal = legal and string.find(part, '^[%a_][%w_]*$')
  end
  if not legal then
    refuse((what or 'func') .. '=' .. short(func) .. ': write module.function or path/to/module.function, in ASCII '
      .. 'identifiers, at most ' .. MAX_FUNC .. ' bytes')
  end
  return func
end

-- A due time: ms from now, or `@` and ms since 1970, in the form that operations take.
local function check_when(when)
  local at, digits = string.match(when, '^(@?)(%d+)$')
  if not digits or #digits > 15 or (at == '' and tonumber(digits) > LONGEST) then
    refuse('when=' .. short(when) .. ': write milliseconds from now, at most 100 years, or @ and '
      .. 'milliseconds since 1970')
  end
  return at == '@' and 'at' or 'in', string.format('%.0f', tonumber(digits))
end

local function check_tags(tags)
  for tag in string.gmatch(tags, '%S+') do
    if #tag > 128 or not string.find(tag, '^[%w_.:@/-]+$') then
      refuse('tag ' .. short(tag) .. ': a tag has 1 to 128 characters from A-Z a-z 0-9 and '
        .. '_ . : @ / -')
    end
  end
  return tags
end

local function check_seconds(name, text)
  local seconds = (string.find(text, '^%d+$') or string.find(text, '^%d+%.%d*$')) and tonumber(text)
  if not seconds or seconds <= 0 or seconds * 1000 > LONGEST then
    refuse(name .. '=' .. short(text) .. ': write seconds, above 0, such as 90 or 2.5')
  end
  return text
end

local UTF8 = { '[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]', '\237[\128-\159][\128-\191]',
  '[\225-\236\238\239][\128-\191][\128-\191]', '\240[\144-\191][\128-\191][\128-\191]',
  '[\241-\243][\128-\191][\128-\191][\128-\191]', '\244[\128-\143][\128-\191][\128-\191]' }

local function is_utf8(text)
  for _, form in ipairs(UTF8) do text = string.gsub(text, form, ' ') end
  return not string.find(text, '[\128-\255]')
end

-- Beyond 64 bits a reader would get another integer.
local function fits(digits)
  local minus, size = string.match(digits, '^(%-?)(%d+)$')
  if not size then return true end -- it has a fraction or an exponent
  local most = minus == '-' and '09223372036854775808' or '18446744073709551615'
  size = string.rep('0', 20 - #size) .. size
  return #size == 20 and size <= most
end

local WORDS = { ['true'] = true, ['false'] = true, ['null'] = true }

-- The server's parser accepts more numbers than JSON does (NaN, 0x1, 01), and rounds.
local function check_numbers(bare)
  local without_strings = string.gsub(bare, '"[^"]*"', '""')
  for word in string.gmatch(without_strings, '[%w.+-]+') do
    local number, exponent = string.match(word, '^%-?(%d+)%.?%d*(.*)')
    local odd = not number or not string.find(exponent, '^[eE]?[+-]?%d*$') or string.find(number, '^0%d')
      or string.find(word .. ' ', '%.%D')
    if odd and not WORDS[word] then
      return short(word) .. ' is no JSON'
    end
    if not fits(word) then return 'an integer is beyond 64 bits' end
    if math.abs(tonumber(word) or 0) == math.huge then return short(word) .. ' is infinite' end
  end
end

-- It accepts control characters in strings.
local function check_strings(bare)
  for word in string.gmatch(bare, '"([^"]*)"') do
    if string.find(word, '[%z\1-\31]') then
      return 'a control character in a string: write \\n, \\t or \\u0001'
    end
  end
end

-- Reads JSON. An error does not quote the text: it may be a secret.
local function check_json(name, json)
  if not is_utf8(json) then refuse(name .. ': not UTF-8') end
  local read, value = pcall(cjson.decode, json)
  local bare = string.gsub(json, '\\.', '') -- any quote left ends a string
  local problem = not read and 'not JSON' or check_strings(bare) or check_numbers(bare)
  if problem then refuse(name .. ': ' .. problem) end
  return value
end

local function check_args(args)
  if #args > MAX_ARGS then refuse('args: ' .. #args .. ' bytes; at most ' .. MAX_ARGS) end
  if not string.find(args, '^%s*[[{]') then
    refuse('args: neither an array nor an object: write [42,"hi"] or {"name":"value"}')
  end
  local value = check_json('args', args)
  local positional = {}
  if string.find(args, '^%s*{') and value['*'] ~= nil then positional = value['*'] end
  -- To the parser, {} and [] are the same.
  local odd = type(positional) ~= 'table' or type(next(positional)) == 'string'
  if odd or (next(positional) == nil and string.find(args, '"%*"%s*:%s*{')) then
    refuse('args: the positional arguments under "*" are not an array')
  end
  return args
end

local function check_retry(retry)
  local delays = string.find(retry, '^%s*%[') and check_json('retry', retry)
  local well = delays and #delays <= 1000
  for _, delay in ipairs(delays or {}) do
    well = well and type(delay) == 'number' and delay >= 0 and delay * 1000 <= LONGEST
  end
  if not well then refuse('retry: write an array of seconds, such as [15,60]; [] for one attempt') end
  return retry
end

local drawn = 0

-- A unique id, of this partition. The time stands still during a transaction.
local function draw_id()
  local time = redis.call('TIME')
  drawn = drawn + 1
  local id = string.sub(redis.sha1hex(time[1] .. '.' .. time[2] .. ':' .. drawn), 1, 32)
  return partitions > 1 and tag .. '@' .. id or id
end

-- The words for the codes of changes.
local function changed(code, done)
  return ({ done, 'rearmed', 'running', 'finished', 'not found', [7] = 'elsewhere', [8] = 'waiting' })[code]
end

-- Why nothing may be written now, if so. A slot of a cluster that is moved key by key is on two nodes,
-- and a client that follows ASK comes to the new one, where a script sees what has arrived so far.
-- Only there is it refused to look at two names of no key.
local function slot_fault(prefix)
  local found = string.find(prefix, '^{[^{}]+}') and redis.pcall('EXISTS', prefix, prefix .. ':')
  if type(found) ~= 'table' or not found.err then return nil end
  if not string.find(found.err, 'non local key', 1, true) then return found end
  return redis.error_reply('TRYAGAIN the slot of ' .. prefix .. ' is being moved to this node key '
    .. 'by key; nothing was written')
end

-- Runs an operation for a caller: reads its arguments, and replies in words.
local function serve(usage, read, operate, tell, keys, given)
  local well, argv = pcall(function()
    if #keys ~= 1 or keys[1] == '' or string.find(keys[1], '?', 1, true) then
      refuse('give one key, the prefix: ' .. usage)
    end
    find_partition(keys[1])
    return read(given, usage)
  end)
  if not well then
    if type(argv) ~= 'table' or not argv.refused then error(argv, 0) end
    return redis.error_reply('EXPIREBRIDGE_INVALID ' .. argv.refused)
  end
  local fault = slot_fault(keys[1])
  if fault then return fault end
  local reply = operate(keys, argv)
  if type(reply) == 'table' and reply.err then return reply end
  return tell(reply, argv)
end
