-- include names
-- include format
-- include limits
-- include records
-- gives limits_of, lanes_of
-- when limits

-- The limits of functions, and the lanes of tasks. The value of an argument in the name of a lane is read from JSON
-- text: expirebridge/limits/values.py has the same.

-- What a limit asks for: the places of a parameter's place, name and default in what a function declares of it.
local LANE, TENANT, COST = 2, 5, 8
local ASKED = { LANE, TENANT, COST }

-- The limits of a function, or nil.
local function limits_of(func)
  local name = 'f ' .. func
  if limits_read[name] == nil then
    local list, text = read_json(own_key('limits'), name)
    local well = list and list[1] ~= nil
    local lanes = {}
    for i, limit in ipairs(list or NONE) do
      well = well and type(limit) == 'table' and type(limit[1]) == 'string'
      if well and type(limit[9]) == 'string' then list.has_costs = true end
      for _, at in ipairs(well and ASKED or NONE) do
        if type(limit[at + 1]) == 'string' then lanes = nil end
      end
      if well and lanes then lanes[i] = limit[1] end
    end
    -- Where no argument is asked for, all tasks have the same `lanes`.
    if well then list.text, list.lanes = text, lanes end
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

-- Looks for arguments in one pass: `wanted` has the places of some, from 0, by their names; `found` gets the JSON of each
-- that is there. Nothing is decoded that is not needed: arguments may have 64 KiB. What is no JSON gives nothing, or
-- anything.
local function find_arguments(args, wanted, found)
  local begin = string.find(args, '[^%s]') or 1
  local is_object = string.sub(args, begin, begin) == '{'
  local at, number, last, positional = string.find(args, '[^%s]', begin + 1), 0, -1, nil
  for _, place in pairs(wanted) do last = math.max(last, place) end
  while at and (is_object or number <= last) do
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
    if not is_object then
      for name, place in pairs(wanted) do
        if place == number then found[name] = string.sub(args, at, stop - 1) end
      end
    -- Of two with one name, the last counts.
    elseif key and wanted[key] then
      found[key] = string.sub(args, at, stop - 1)
    elseif key == '*' then
      positional = string.sub(args, at, stop - 1)
    end
    number = number + 1
    at = string.match(args, '^%s*,%s*()', stop)
  end
  if not positional then return end
  local missing = {}
  for name, place in pairs(wanted) do missing[name] = not found[name] and place or nil end
  find_arguments(positional, missing, found)
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

-- The JSON of the arguments for which limits ask, by their names. Second, true if the arguments cannot be read: nobody
-- here can read those that are sealed, or that a codec encoded. Their producer wrote the values behind them.
local function arguments_of(limits, args)
  local wanted, found = {}, {}
  for _, limit in ipairs(limits) do
    for _, at in ipairs(ASKED) do
      local name = limit[at + 1]
      if type(name) == 'string' then wanted[name] = tonumber(limit[at]) or -1 end
    end
  end
  if not next(wanted) then return found, false end
  if not string.find(args, '^%l+:') then
    find_arguments(args, wanted, found)
    return found, false
  end
  local clear = string.match(args, '^%S+ (.*)$')
  if clear then find_arguments(clear, wanted, found) end
  return found, true
end

-- What a budget takes, from the JSON of its argument; nil if nobody can read it.
local function cost_of(json, default)
  local cost = not json and default or json and string.match(value_of_lane(json), '^[%d.]+$')
  cost = tonumber(cost or nil)
  return cost and cost >= 0 and math.ceil(cost) or nil
end

-- What was found before, and is in the record of a task that has waited: it begins with a fingerprint. Nil if it is
-- other than that, or has not a line for each of so many limits.
local function known_lanes(text, fingerprint, number)
  local lanes, tenants, costs = {}, {}, {}
  if string.sub(text or '', 1, #fingerprint + 1) ~= fingerprint .. '\n' then return nil, nil, nil end
  for lane, tenant, cost in string.gmatch(text, '\n([^\t\n]*)\t([^\t\n]*)\t(%d*)') do
    lanes[#lanes + 1] = lane
    tenants[lane] = string.match(tenant, '^=(.*)')
    costs[lane] = tonumber(cost)
  end
  return #lanes == number and lanes or nil, tenants, costs
end

-- The lanes of a task, in the order in which it takes its slots; by lane the tenant whose turn it takes; and its cost.
-- Last, what its record is to keep of that if it waits: to find an argument behind others may take long.
local function lanes_of(limits, record)
  if limits.lanes then return limits.lanes, NONE, NONE end
  local args = record.args or string.match(record.call, '%?(.*)') or ''
  local fingerprint = (limits.has_costs or #args > 1000) and redis.sha1hex(limits.text .. '\n' .. args)
  if fingerprint then
    local lanes, tenants, costs = known_lanes(record.lanes, fingerprint, #limits)
    if lanes then return lanes, tenants, costs, record.lanes end
  end
  local lanes, tenants, costs, words = {}, NONE, NONE, { fingerprint }
  local found, is_sealed = arguments_of(limits, args)
  local function value_at(limit, at)
    local name, default = limit[at + 1], limit[at + 2]
    if type(name) ~= 'string' then return nil end
    local json = found[name]
    if json then return value_of_lane(json) end
    -- Those whose producer wrote no value share one lane.
    return is_sealed and '?' or type(default) == 'string' and default or ''
  end
  for i, limit in ipairs(limits) do
    local value, tenant = value_at(limit, LANE), value_at(limit, TENANT)
    local lane = value and limit[1] .. '=' .. value or limit[1]
    lanes[i] = lane
    if tenant then
      if tenants == NONE then tenants = {} end
      tenants[lane] = tenant
    end
    if type(limit[COST + 1]) == 'string' then
      if costs == NONE then costs = {} end
      costs[lane] = cost_of(found[limit[COST + 1]], not is_sealed and limit[COST + 2])
    end
    if fingerprint then
      words[#words + 1] = lane .. '\t' .. (tenant and '=' .. tenant or '') .. '\t' .. (costs[lane] or '')
    end
  end
  return lanes, tenants, costs, fingerprint and table.concat(words, '\n') or nil
end
