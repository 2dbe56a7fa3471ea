-- include names
-- include clock
-- include fleet

-- The listeners that beat within a lease, in ms, and do not say in `fleet` which code they run. They are
-- of the first version, and know only format 1. (Those that know format 2 need not say more than that.)
local function silent_listeners(lease)
  -- With ZRANGE, which producers may send, too.
  local beating = redis.call('ZRANGE', listeners_key, now - lease, '+inf', 'BYSCORE')
  local silent = {}
  for i, code in ipairs(codes_of(beating)) do
    if not code then silent[#silent + 1] = beating[i] end
  end
  return silent
end
