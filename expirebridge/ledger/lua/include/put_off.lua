-- include clock
-- gives PUT_OFF, put_off_from, put_off_to

-- A dirty id whose row could not be written is put off: its score in `dirty` is between these two, the first of which
-- moves on with the clock, in microseconds. A change of its task marks it as any other. A score above both is none of
-- ours.
local PUT_OFF = 6e15
local put_off_from, put_off_to = PUT_OFF + now_us, PUT_OFF + now_us + 3600e6
