-- include clock
-- include format
-- include hooks
-- include making
-- include producer_changes
-- include records
-- when signals
-- on on_make 60 keep_signalled

-- Nothing puts off what a signal has decided: `extend` of the call that was lost finds the task, and keeps it.
local function keep_signalled(id, item, nonce, same_args)
  if item.if_exists ~= 'extend' then return end
  local old = read(id, { 'lost', 'args', 'due', 'left', 'next', 'nonce' })
  if not old or FINISHED[old.state] or answered(old, nonce) then return end
  local last = old.next or old
  local lost = old.next and value_of(old.next.fields, 'lost') or not old.next and old.lost
  if lost ~= item.call or not same_args(last.args, item.args) then return end
  return MADE.kept, old.next and last.due or due_of(id, old), old.state, last
end
