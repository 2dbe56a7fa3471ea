-- include names
-- include format

-- Whether a listener that beats may take a task instead of those that run the code `mine`: it knows the
-- function, in another shape if `mine` knows it, too, and its code is not one of those that `refused`.
-- Beside it, the shape of the function in `mine`, if that knows it. What another client put in the
-- place of a declaration knows nothing.
local function others_know(func, mine, refused)
  local others, own = false, nil
  for fingerprint in string.gmatch(mine .. ' ' .. (fleet_code or ''), '%x+') do
    local shape = func ~= '#' and redis.pcall('HGET', code_key(fingerprint), func)
    if type(shape) == 'string' then
      if fingerprint == mine then
        own = shape
      elseif shape ~= own and not string.find(refused, fingerprint, 1, true) then
        others = true
      end
    end
  end
  return others, own
end
