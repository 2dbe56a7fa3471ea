-- include producer_changes
-- include format
-- include hooks
-- include migrated
-- include names
-- unless plain
-- on on_change 50 answer_elsewhere
-- on on_made 50 note_asked

-- While tasks are moved, one that is not here may be in the other database.
local function answer_elsewhere(id, record)
  return moving and is_elsewhere(id, record) and ELSEWHERE or nil
end

-- There may be a task of this id where it is moved to.
local function note_asked(id, item)
  if moving then redis.call('HSET', record_key(id), 'asked', item.if_exists) end
end
