-- Whether the server sorts one id behind another that has the same score: it compares bytes, which
-- `>` does not in every locale.
local function is_behind(one, other)
  for place = 1, math.min(#one, #other) do
    local byte, its_byte = string.byte(one, place), string.byte(other, place)
    if byte ~= its_byte then return byte > its_byte end
  end
  return #one > #other
end

-- The rank in a set of the first task behind a score and an id, whether that task is still there or not.
local function rank_behind(set, score, id)
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local high = redis.call('ZCOUNT', set, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_behind(redis.call('ZRANGE', set, middle, middle)[1], id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
