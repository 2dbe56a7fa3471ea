-- include names
-- include format
-- gives group_key, UNENDED, MOST_MEMBERS, KEPT_GROUP, MEMBER_ID, missing_before

-- A group: tasks that belong together, and a follow-up that is made due when all have ended. Its members are the tasks
-- `<group>@g<number>`; its follow-up is the task `<group>@then`, which is paused until then. The hash `group:<name>`:
--   made, ended   when it was made, and when its last member ended, in ms
--   definition    a digest of what it was made with
--   on_failed     what a failed member does: 'wait' (it has not ended: it is to be run again, unless the group is
--                 cancelled), 'run' (it has ended), or 'cancel' (the group is cancelled)
--   left          members that have not ended
--   failed_at     when a member last failed, in ms
--   succeeded, failed, cancelled   members that are in these states, or were when their records were forgotten
--   next          one more than the highest number that was given out
--   asked         so many members, from number 0 on, its maker makes: it is not closed before
--   then          the id of the follow-up, if there is one
--   closed        1 when no member is added any more
--   stopped       since when it is cancelled, in ms
--   cancelled_to  then: the number of the next member to be cancelled
-- The value `group:<name>@members` has two bits for each number. The set `groups` has each group, with the ms until which
-- it is kept once it has ended, and UNENDED before; the set `stopping`, those of which members are to be cancelled.
local function group_key(name, part) return own_key('group:' .. name .. (part or '')) end

local UNENDED = 9007199254740991
local MOST_MEMBERS = 100000
-- Time in ms for which a group is kept once it has ended.
local KEPT_GROUP = 86400000

-- The group and the number in a member's id.
local MEMBER_ID = '^([^@]+)@g(%d+)$'

-- How many of the first `count` numbers in a byte of that value were not made.
local function missing_in(byte, count)
  local missing = 0
  for place = 1, count do
    if math.floor(byte / 4 ^ (4 - place)) % 4 == 0 then missing = missing + 1 end
  end
  return missing
end

-- How many of the first `count` numbers of a group were not made.
local function missing_before(name, count)
  local bytes, missing, known = redis.call('GET', group_key(name, '@members')) or '', 0, {}
  for byte = 0, 255 do known[byte] = missing_in(byte, 4) end
  for at = 1, math.floor(count / 4) do missing = missing + known[string.byte(bytes, at) or 0] end
  return missing + missing_in(string.byte(bytes, math.floor(count / 4) + 1) or 0, count % 4)
end
