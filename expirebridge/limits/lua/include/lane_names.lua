-- include names
-- include format
-- include limits
-- include records
-- gives limits_of, lanes_of
-- when limits

-- The limits of functions, and the lanes of tasks. The value of an argument in the name of a lane is read from JSON
-- text: expirebridge/limits/values.py has the same.

-- The limits of a function, or nil.
local function limits_of(func)
  local name = 'f ' .. func
  if limits_read[name] == nil then
    local list = read_json(own_key('limits'), name) or {}
    local well = list[1] ~= nil
    for _, limit in ipairs(list) do well = well and type(limit) == 'table' and type(limit[1]) == 'string' end
    limits_read[name] = well and list or false
  end
  return limits_read[name] or nil
end

-- The place behind a JSON text that begins at a place; nil if it has no end.
local function behind_text(json, at)
  repeat
    at = string.find(json, '["\\]', at + 1)
    if not at then return nil end
    local is_end = string.byte(json, at) == 34
    if not is_end then at = at + 1 end
  until is_end
  return at + 1
end

-- The place behind the JSON value that begins at a place; nil if it has no end.
local function behind_value(json, at)
  local first = string.sub(json, at, at)
  if first == '"' then return behind_text(json, at) end
  if first ~= '[' and first ~= '{' then return string.find(json, '[%s,%]}]', at) end
  local depth = 0
  repeat
    at = string.find(json, '["%[%]{}]', at)
    if not at then return nil end
    local mark = string.sub(json, at, at)
    if mark == '"' then
      at = behind_text(json, at)
      if not at then return nil end
    else
      depth = depth + ((mark == '[' or mark == '{') and 1 or -1)
      at = at + 1
    end
  until depth == 0
  return at
end

-- The text that a JSON text stands for; nil if it is none.
local function text_of(json)
  if not string.find(json, '\\', 1, true) then return string.sub(json, 2, -2) end
  local well, value = pcall(cjson.decode, '[' .. json .. ']')
  return well and value[1] or nil
end

-- Looks for an argument: by its name in an object, by its place, from 0, in an array. Second, the array of positional
-- arguments that an object may have. Nothing is decoded that is not needed: arguments may have 64 KiB. What is no
-- JSON gives nil, or anything.
local function find_argument(args, place, name)
  local begin = string.find(args, '[^%s]') or 1
  local is_object = string.sub(args, begin, begin) == '{'
  local at, number, found, positional = string.find(args, '[^%s]', begin + 1), 0, nil, nil
  while at do
    local key
    if is_object then
      local stop = string.sub(args, at, at) == '"' and behind_text(args, at)
      if not stop then break end
      key = text_of(string.sub(args, at, stop - 1))
      at = string.match(args, '^%s*:%s*()', stop)
      if not at then break end
    end
    local stop = behind_value(args, at)
    if not stop or stop == at then break end
    if is_object then
      -- Of two with one name, the last counts.
      if key == name then found = string.sub(args, at, stop - 1) end
      if key == '*' then positional = string.sub(args, at, stop - 1) end
    else
      if number == place then return string.sub(args, at, stop - 1) end
      number = number + 1
    end
    at = string.match(args, '^%s*,%s*()', stop)
  end
  return found, positional
end

-- The JSON of an argument, or nil.
local function argument_of(args, place, name)
  local found, positional = find_argument(args, place, name)
  if not found and positional and place >= 0 then found = find_argument(positional, place, name) end
  return found
end

-- The value of a lane from the JSON of an argument: see expirebridge/limits/values.py, which has the same.
local function value_of_lane(json)
  local value = json
  local first = string.sub(json, 1, 1)
  if first == '"' then
    value = text_of(json) or json
  elseif first == '[' or first == '{' then
    return '#' .. redis.sha1hex(json)
  elseif json == '-0' then
    return '0'
  elseif not string.find(json, '^%-?%d+$') then
    local number = tonumber(json)
    if number and number % 1 == 0 and math.abs(number) <= 2 ^ 53 then
      value = number == 0 and '0' or string.format('%.0f', number)
    elseif number then
      value = string.format('%.17g', number)
    end
  end
  if #value > 100 or string.find(value, '[%z\1-\31\127]') then return '#' .. redis.sha1hex(value) end
  return value
end

-- The value of an argument, for the name of a lane. Nobody here can read arguments that are sealed, or that a codec
-- encoded: their producer wrote the value behind them, or else they share one lane.
local function value_of_argument(args, place, parameter, default)
  if string.find(args, '^%l+:') then
    local clear = string.match(args, '^%S+ (.*)$')
    local value = clear and find_argument(clear, -1, parameter)
    return value and value_of_lane(value) or '?'
  end
  local json = argument_of(args, tonumber(place) or -1, parameter)
  return json and value_of_lane(json) or type(default) == 'string' and default or ''
end

-- The lanes of a task, in the order in which it takes its slots; and by lane the tenant whose turn it takes.
local function lanes_of(limits, record)
  local lanes, tenants, args = {}, NONE, nil
  for i, limit in ipairs(limits) do
    local lane, parameter = limit[1], limit[3]
    if type(parameter) == 'string' or limit[6] then
      args = args or record.args or string.match(record.call, '%?(.*)') or ''
    end
    if type(parameter) == 'string' then
      lane = lane .. '=' .. value_of_argument(args, limit[2], parameter, limit[4])
    end
    lanes[i] = lane
    if limit[6] then
      if tenants == NONE then tenants = {} end
      tenants[lane] = value_of_argument(args, limit[5], limit[6], limit[7])
    end
  end
  return lanes, tenants
end
