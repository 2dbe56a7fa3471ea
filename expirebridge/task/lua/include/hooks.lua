-- gives on_move, on_forget, on_make, on_give_up, on_anew, settle_fields, on_settle, on_settled, on_let_go, on_retry
-- gives on_succeed, on_refused, at_end, claim_fields, held_fields, on_look, on_claim, on_start, on_take, before_taken, on_crowded
-- gives on_park, on_renew, on_left, keyless, on_change, on_made, on_edit, on_sweep, on_swept
-- gives on_count, on_list, kept_paused, on_beat, on_gone, lacking, stranded
-- gives on_show, on_tell, on_again, on_next, on_revise, kept_longer
-- gives on_write, on_reply, on_swap, on_stray, other_functions, on_meet, left_fields, on_new, on_first, on_skip, on_served

-- What else is done when something happens to a task. Those who go through these lists know nothing of what is in them:
-- a shared file adds a function by a line `-- on on_move 20 leave_or_keep`, and need not be included. The numbers are the
-- order: rows of a ledger are marked first, then lanes are left, then groups count.

-- (id, record, before, state, look_at, fields): a task has its new place, and still its place `before`. One whose record
-- is lost is told as cancelled.
local on_move = {}
-- (id, record): a record is about to be deleted, or starts anew.
local on_forget = {}
-- (id, item, nonce, same_args): a task with an id of its producer's is to be made. Who answers, as `make_plain` does, has
-- made it, or refused it; `same_args` compares the arguments of two.
local on_make = {}
-- (fields, id, due): a record, or a successor, is about to be written, with these names and values, whose id was not drawn
-- for it. `id` and `due` are there if it is about to be pending.
local on_write = {}
-- (id, record, due, fields): a task that is new here is about to be pending, with these names and values in its record.
local on_new = {}
-- (id): nobody waits any longer for a failed task to run again.
local on_give_up = {}
-- (id): a finished task is about to start anew. Returns names and values that its record keeps, or nil.
local on_anew = {}
-- (id, record): a task that ran runs again as a new one, since somebody asked for that here.
local on_again = {}
-- (task): a successor of a running task, which had ended before it began, is to run after all.
local on_next = {}
-- (id, record): what is known of a task has changed, though not its place.
local on_revise = {}

-- Names of fields that are read of each task whose attempt has ended.
local settle_fields = {}
-- (id, record, outcome, told, delay): an attempt has ended, which is not written yet. What it told is a word, or nil.
local on_settle = {}
-- (id, record, token, told): an attempt has ended that had lost its claim.
local on_refused = {}
-- (id, record): its outcome is written, if the task was not asked to run again meanwhile.
local on_settled = {}
-- (id): a task is to run again, and does not keep what it held for the attempt.
local on_let_go = {}
-- (id, at): an attempt has failed. True if no further one may start at that time.
local on_retry = {}
-- (tasks): these have succeeded, each an id, its result and its record.
local on_succeed = {}
-- (): the script has done its work. True if it left something to another one.
local at_end = {}

-- Names of fields that are read of each due task, and of each that a listener holds.
local claim_fields = {}
local held_fields = {}
-- (record): True if a due task is not to be claimed now, and may be passed over.
local on_look = {}
-- (most): Returns due tasks that are looked at before all others, at most so many, each followed by its score; none twice
-- in one script. They may be behind others of their ordered lanes.
local on_first = {}
-- (id): a task is left for now, since others of its ordered lane may be before it.
local on_skip = {}
-- (id, record, values, score): a task is due, and its record was read. Returns its due time, as text, or nil if it does
-- not start now.
local on_claim = {}
-- (id, record, score, taken, keep_failed): it is about to start, after those that were taken. False if it does not.
local on_start = {}
-- (id, record, set, gone): it starts. Adds what its record gets, names and values, and names of fields that it loses.
local on_take = {}
-- (record): a task is told to the listener that takes it. Returns names and values that few tasks have, or nil.
local on_reply = {}
-- (): the tasks that were taken are about to be written.
local before_taken = {}
-- (): so many tasks were made to wait that this script looks at the others only in part.
local on_crowded = {}
-- (id, record, keep_failed): a task is made to wait, although it is due.
local on_park = {}
-- (places): tasks that waited are about to be pending, since they were given a slot: their scores, each followed by the id.
local on_served = {}
-- (id, record): a listener holds its claim of a task.
local on_renew = {}
-- (): scripts before this one may have left something.
local on_left = {}
-- (id): True if a task may be without a key before its time.
local keyless = {}

-- (id, record): a task is about to be changed for a producer. Returns another answer than the change would, or nil.
local on_change = {}
-- (id, item): a task was made, with an id of its producer's.
local on_made = {}
-- (id, record, new): a task has got other arguments.
local on_edit = {}
-- (id, record, new): a task is about to be due, with another function.
local on_swap = {}
-- (most, lease, keep_failed): a sweep, which handles so many of each. Afterwards, (found): what it found; see sweep.lua.
local on_sweep = {}
local on_swept = {}
-- (id, record): a finished task is about to be forgotten. Returns the ms for which it is kept all the same, or nil.
local kept_longer = {}
-- (reply): tasks were counted; see count.lua.
local on_count = {}
-- (state, cursor, count): a page of tasks is to be listed. Who knows which by an argument of its own returns the cursor
-- of the next page, and their ids.
local on_list = {}
-- (id): True if a paused task waits for others, so that resuming many spares it.
local kept_paused = {}

-- (reply): a listener's heartbeat is answered; see heartbeat.lua.
local on_beat = {}
-- (listener): it is there no longer.
local on_gone = {}
-- (): True if this database lacks what a listener declares, so that it may not claim anything.
local lacking = {}
-- (id, record): True if a task that has its place is not to be found by those who look for such tasks.
local stranded = {}

-- Names of fields that hold the function that a task may run instead of its own, as long as it can.
local other_functions = {}
-- (id, name): there is a key that names a task, and is not its. True if it is known for what it is.
local on_stray = {}
-- (id, record, item, asked, stays): a task, `item`, arrives from another database, and one of this id is here. `asked` is
-- the `if_exists` of its producer, who did not know of that; `stays` if the one here stays in any case. True if it stays.
local on_meet = {}
-- Names of fields that stay behind in what is left of a task that was moved.
local left_fields = {}

-- (id, shown): a task is shown as `get` does.
local on_show = {}
-- (id, record, fields, tell): what decides when it runs is told, by names and values. Returns where it stands, if that
-- is not shown; see read_circumstances.lua.
local on_tell = {}
