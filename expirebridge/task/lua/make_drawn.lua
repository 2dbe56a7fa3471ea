-- flags: (none: refused whole when memory is full)
-- Makes tasks as make.lua does, if all their ids were drawn at random for this call, which is nearly always. make.lua
-- asks whether they are there, and what is done then; that is most of its text, and the server runs all of it.
--
-- KEYS[1]  prefix
-- ARGV     1 database, 2 '', then for each task as in make.lua
-- returns  what make.lua returns

-- include features
-- include ring
-- include drawn

mark_format()
local reply = make_each(read_request, make_drawn)
ring_if_first()
return reply
