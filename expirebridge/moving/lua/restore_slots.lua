-- flags: (none: refused whole when memory is full)
-- Gives tasks that were just imported the slots of ordered lanes that they kept elsewhere, once.
--
-- KEYS[1]  prefix
-- ARGV     1 database, then for each task: id, and its lanes, one a line
-- returns  1
--
-- One that has begun here since, or has ended, is passed over. In a database of several partitions there are no lanes.

-- include names
-- include format
-- include features
-- include clock
-- include lane_keys
-- include ring

if partitions > 1 then return 1 end
note_feature('limits')

-- include records
-- include lanes
-- include limits

ring_after(function()
  for at = 2, #ARGV, 2 do
    local id, slots = ARGV[at], ARGV[at + 1]
    local record = read(id, { 'started' })
    if record and not record.started and (record.state == 'pending' or record.state == 'paused') then
      for lane in string.gmatch(slots, '[^\n]+') do
        change_lane('SADD', lane_key(lane), id)
        touched[lane] = true
      end
      redis.call('HSET', record_key(id), 'slots', slots, 'started', string.format('%.0f', now))
    end
  end
end, true)
return 1
