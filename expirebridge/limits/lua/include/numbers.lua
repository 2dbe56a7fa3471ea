-- include limits
-- gives judge_number

-- Whether a number that somebody sets for a limit, or for one value of it, counts: 1 it does, 2 no handler has the limit,
-- 3 it has one lane for all, 4 its tasks run in order, 5 it can have no such number.

-- The limits with `per`, as a set.
local by_value
local function has_values(name)
  if not by_value then
    by_value = {}
    local fields = redis.pcall('HGETALL', own_key('limits'))
    for i = 1, #fields, 2 do
      local is_of_function = string.sub(fields[i], 1, 2) == 'f '
      for _, limit in ipairs(is_of_function and read_json(own_key('limits'), fields[i]) or {}) do
        -- Another client may have written anything.
        if type(limit) == 'table' and type(limit[1]) == 'string' and type(limit[3]) == 'string' then
          by_value[limit[1]] = true
        end
      end
    end
  end
  return by_value[name]
end

local function judge_number(name, is_of_one, text)
  local limit = read_json and read_json(own_key('limits'), 'l ' .. name)
  if not limit or not next(limit) then return 2 end
  if is_of_one and not has_values(name) then return 3 end
  if number_of(limit, text) then return 1 end
  return limit.ordered and 4 or 5
end
