-- include producer_changes
-- include clock
-- include groups
-- include making
-- include members
-- include records
-- include hooks
-- on on_make 30 make_member

-- Makes a member of a group, and counts it. One that has ended is not made again, even if its record is gone.
local function make_member(id, item, nonce)
  local name, number = string.match(id, MEMBER_ID)
  if not name then return nil end
  local group = bits_of and redis.pcall('HMGET', group_key(name), 'on_failed', 'closed', 'next')
  if not group or group.err or not group[1] then return MADE.no_group, item.due, 'pending', item end
  local was = bits_of(name, number)
  if was == MEMBER.ENDED then
    local old = read(id, { 'nonce' })
    if not answered(old, nonce) then
      -- Of one that is forgotten, nobody knows how it ended.
      return item.if_exists == 'keep' and MADE.kept or MADE.exists, now, old and old.state or 'succeeded', old or item
    end
  end
  local is_number = tonumber(number) < MOST_MEMBERS and (number == '0' or not string.find(number, '^0'))
  if was == MEMBER.NOT_MADE and (group[2] or not is_number) then return MADE.closed, item.due, 'pending', item end
  local code, due, state, task = make_plain(id, item, nonce)
  if was == MEMBER.NOT_MADE and code ~= MADE.exists and code ~= MADE.differs and code ~= MADE.in_ledger then
    set_bits(name, number, MEMBER.OPEN)
    count_in_group(name, 'left', 1)
    if tonumber(number) >= (tonumber(group[3]) or 0) then
      redis.call('HSET', group_key(name), 'next', string.format('%.0f', number + 1))
    end
    -- A finished task of its id was kept.
    if FINISHED[state] then note_member(id, 'pending', state) end
  elseif was == MEMBER.FAILED and state == 'pending' then
    note_member(id, 'failed', 'pending')
  end
  return code, due, state, task
end
