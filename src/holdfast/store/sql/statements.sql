-- Every statement the SQL stores use, by name. Values are always bound, never written into the text.
-- `columns` names a list of columns once; <name> stands for it, <alias.name> for it with a table's alias before each.

-- columns run: run, run_id, family, incarnation, workflow, status, metadata, origin, created_us, updated_us, position, serial, head, head_id, step, effects, attached, rewrites, inbox, outbox, fence, owner, nonce, lease_us, boot, gc_epoch, ready_us, commit_id, seal
-- columns checkpoint: key & 4294967295, lane, checkpoint_id, named, parent_id, step, next_node, covers, status, metadata, created_us, root, seal
-- columns entry: key & 4294967295, kind, created_us, commit_id, body, seal
-- columns effect: key & 4294967295, name, state, tool, target, reversible, after_checkpoint, after_position, created_us, updated_us, commit_id, body, call, seal
-- columns attachment: key & 4294967295, lane, checkpoint_id, name, created_us, root, seal
-- columns gate: gate, state, opened_us, expires_us, answered_us, answered_by, body, seal
-- columns item: key & 4294967295, kind, name, item, sender, created_us, taken, body, seal
-- columns message: key & 4294967295, target, kind, name, item, created_us, body, seal

-- name: new_run_number
UPDATE counters SET value = value + 1 WHERE name = 'run' RETURNING value;

-- name: insert_run
INSERT INTO runs (<run>) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: update_run
UPDATE runs SET workflow = ?, status = ?, metadata = ?, updated_us = ?, position = ?, serial = ?, head = ?, head_id = ?,
    step = ?, effects = ?, attached = ?, rewrites = ?, inbox = ?, outbox = ?, fence = ?, owner = ?, nonce = ?,
    lease_us = ?, boot = ?, gc_epoch = ?, ready_us = ?, commit_id = ?, seal = ?
WHERE run = ? AND commit_id = ?;

-- name: update_run_progress
UPDATE runs SET updated_us = ?, position = ?, serial = ?, head = ?, head_id = ?, step = ?, commit_id = ?, seal = ?
WHERE run = ? AND commit_id = ?;

-- name: run_by_id
SELECT <run> FROM runs WHERE run_id = ?;

-- name: runs_of_family
SELECT <run> FROM runs WHERE family = ? ORDER BY run;

-- name: runs_page
SELECT <r.run> FROM runs r WHERE r.run < ?

-- name: runs_page_of_tag
SELECT <r.run> FROM tags t CROSS JOIN runs r WHERE r.run = t.run AND t.run < ? AND t.key = ? AND t.value = ?

-- name: runs_page_of_tag_end
ORDER BY t.run DESC LIMIT ?;

-- Ids that begin so are found first, by the index of ids, whatever else is asked for; they are few.
-- name: runs_page_of_prefix
WITH p AS MATERIALIZED (SELECT run FROM runs WHERE run_id >= ? AND run_id < ?)
SELECT <r.run> FROM p CROSS JOIN runs r WHERE r.run = p.run AND r.run < ?

-- name: runs_page_of_prefix_end
ORDER BY r.run DESC LIMIT ?;

-- name: runs_page_tag
AND EXISTS (SELECT 1 FROM tags WHERE tags.key = ? AND tags.value = ? AND tags.run = r.run)

-- name: runs_page_status
AND r.status = ?

-- name: runs_page_statuses
AND r.status IN (SELECT value FROM json_each(?))

-- name: runs_page_workflow
AND r.workflow = ?

-- name: runs_page_family
AND r.family = ?

-- name: runs_page_end
ORDER BY r.run DESC LIMIT ?;

-- name: runs_ready
SELECT <run> FROM runs WHERE ready_us > 0 ORDER BY ready_us, run LIMIT ?;

-- name: runs_ready_of_workflows
SELECT <run> FROM runs WHERE ready_us > 0 AND +workflow IN (SELECT value FROM json_each(?))
ORDER BY ready_us, run LIMIT ?;

-- name: runs_held
SELECT <run> FROM runs WHERE owner <> '' AND (lease_us <= ? OR boot <> ?) ORDER BY lease_us LIMIT ?;

-- Held runs are few among many: found by their own index, and only then ordered.
-- name: runs_held_after
SELECT <run> FROM runs WHERE owner <> '' AND +run > ? ORDER BY +run LIMIT ?;

-- name: delete_run
DELETE FROM runs WHERE run = ?;

-- name: insert_tag
INSERT INTO tags (key, value, run) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: delete_tag
DELETE FROM tags WHERE key = ? AND value = ? AND run = ?;

-- name: insert_checkpoint
INSERT INTO checkpoints (key, run, lane, checkpoint_id, named, parent_id, step, next_node, covers, status, metadata,
    created_us, root, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: replace_checkpoint
UPDATE checkpoints SET parent_id = ?, step = ?, next_node = ?, covers = ?, status = ?, metadata = ?, created_us = ?,
    root = ?, seal = ? WHERE key = ?;

-- name: checkpoint_by_key
SELECT <checkpoint> FROM checkpoints WHERE key = ?;

-- name: checkpoint_by_id
SELECT <checkpoint> FROM checkpoints WHERE named = 1 AND run = ? AND lane = ? AND checkpoint_id = ?;

-- name: checkpoint_by_step
SELECT <checkpoint> FROM checkpoints WHERE key > ? AND key < ? AND lane = ? AND step = ? ORDER BY key DESC LIMIT 1;

-- name: checkpoint_by_cover
SELECT <checkpoint> FROM checkpoints WHERE key > ? AND key < ? AND lane = ? AND covers <= ? ORDER BY key DESC LIMIT 1;

-- name: checkpoint_before
SELECT <checkpoint> FROM checkpoints WHERE key > ? AND key < ? AND lane = ? ORDER BY key DESC LIMIT 1;

-- name: checkpoint_of_lane
SELECT <c.checkpoint> FROM lanes l JOIN checkpoints c ON c.key = l.run * 4294967296 + l.head
WHERE l.run = ? AND l.lane = ?;

-- name: checkpoints_after
SELECT <checkpoint> FROM checkpoints WHERE key > ? AND key <= ? ORDER BY key LIMIT ?;

-- Checkpoints that are searched for: of one run by the range of its keys, of all runs by their dates,
-- and either by their ids.
-- name: found_of_run
SELECT <c.checkpoint> FROM checkpoints c WHERE c.key > ? AND c.key < ?

-- name: found_of_run_end
ORDER BY c.key DESC LIMIT ?;

-- name: found_of_run_by_id_end
ORDER BY c.checkpoint_id DESC, c.key DESC LIMIT ?;

-- name: found
SELECT <r.run>, <c.checkpoint> FROM checkpoints c CROSS JOIN runs r WHERE r.run = c.run

-- name: found_of_workflow
SELECT <r.run>, <c.checkpoint> FROM runs r CROSS JOIN checkpoints c
WHERE r.workflow = ? AND c.key > (r.run << 32) AND c.key < ((r.run + 1) << 32)

-- name: found_before
AND (c.created_us, c.key) < (?, ?)

-- name: found_lane
AND c.lane = ?

-- name: found_id
AND c.checkpoint_id = ?

-- name: found_by_id
AND (c.checkpoint_id, c.key) < (?, ?)

-- name: found_of_run_by_id
AND (c.checkpoint_id, c.key & 4294967295) < (?, ?)

-- name: found_tag
AND instr(c.metadata, ?) > 0

-- name: found_end
ORDER BY c.created_us DESC, c.key DESC LIMIT ?;

-- name: found_by_id_end
ORDER BY c.checkpoint_id DESC, c.key DESC LIMIT ?;

-- name: delete_checkpoint
DELETE FROM checkpoints WHERE key = ?;

-- name: delete_checkpoints
DELETE FROM checkpoints WHERE key > ? AND key <= ?;

-- name: checkpoint_roots
SELECT root FROM checkpoints WHERE key > ? AND key <= ?;

-- name: set_lane
INSERT INTO lanes (run, lane, head, head_id, step) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (run, lane) DO UPDATE SET head = excluded.head, head_id = excluded.head_id, step = excluded.step;

-- name: lane
SELECT lane, head, head_id, step FROM lanes WHERE run = ? AND lane = ?;

-- name: delete_lane
DELETE FROM lanes WHERE run = ? AND lane = ?;

-- name: delete_lanes
DELETE FROM lanes WHERE run = ?;

-- name: insert_chunk
INSERT INTO chunks (family, hash, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: chunk
SELECT body FROM chunks WHERE family = ? AND hash = ?;

-- name: chunk_sizes
SELECT hash, length(body) FROM chunks WHERE family = ?;

-- name: delete_chunk
DELETE FROM chunks WHERE family = ? AND hash = ? RETURNING length(body);

-- name: delete_chunks
DELETE FROM chunks WHERE family = ?;

-- name: insert_entry
INSERT INTO entries (key, kind, created_us, commit_id, body, seal) VALUES (?, ?, ?, ?, ?, ?);

-- name: entries_after
SELECT <entry> FROM entries WHERE key > ? AND key <= ? ORDER BY key LIMIT ?;

-- name: entry_at
SELECT <entry> FROM entries WHERE key > ? AND key <= ? ORDER BY key DESC LIMIT 1;

-- name: entries_pruned
SELECT <entry> FROM entries WHERE key > ? AND key <= ? AND kind = 'pruned' ORDER BY key;

-- name: delete_entries
DELETE FROM entries WHERE key > ? AND key <= ?;

-- name: set_effect
INSERT INTO effects (key, run, name, state, tool, target, reversible, after_checkpoint, after_position, created_us,
    updated_us, commit_id, body, call, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET state = excluded.state, tool = excluded.tool, target = excluded.target,
    reversible = excluded.reversible, after_checkpoint = excluded.after_checkpoint,
    after_position = excluded.after_position, updated_us = excluded.updated_us, commit_id = excluded.commit_id,
    body = excluded.body, call = excluded.call, seal = excluded.seal;

-- name: effect
SELECT <effect> FROM effects WHERE run = ? AND name = ?;

-- name: effects
SELECT <effect> FROM effects WHERE key > ? AND key <= ? ORDER BY key;

-- name: effects_of_family
SELECT <r.run>, <f.effect> FROM runs r JOIN effects f ON f.run = r.run AND f.name = ? WHERE r.family = ? ORDER BY r.run;

-- name: delete_effects
DELETE FROM effects WHERE key > ? AND key <= ?;

-- name: set_attachment
INSERT INTO attachments (key, run, lane, checkpoint_id, name, created_us, root, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, lane, checkpoint_id, name) DO UPDATE SET key = excluded.key, created_us = excluded.created_us,
    root = excluded.root, seal = excluded.seal;

-- name: attachment
SELECT <attachment> FROM attachments WHERE run = ? AND lane = ? AND checkpoint_id = ? AND name = ?;

-- name: attachments_of_checkpoint
SELECT <attachment> FROM attachments WHERE run = ? AND lane = ? AND checkpoint_id = ? ORDER BY name;

-- name: attachments
SELECT <attachment> FROM attachments WHERE run = ? ORDER BY lane, checkpoint_id, name;

-- name: attachment_roots
SELECT root FROM attachments WHERE key > ? AND key <= ?;

-- name: delete_attachments_of_checkpoint
DELETE FROM attachments WHERE run = ? AND lane = ? AND checkpoint_id = ?;

-- name: delete_attachments
DELETE FROM attachments WHERE key > ? AND key <= ?;

-- name: set_gate
INSERT INTO gates (run, gate, state, opened_us, expires_us, answered_us, answered_by, body, seal)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run, gate) DO UPDATE SET state = excluded.state, answered_us = excluded.answered_us,
    answered_by = excluded.answered_by, seal = excluded.seal;

-- name: gate
SELECT <gate> FROM gates WHERE run = ? AND gate = ?;

-- name: gates_of_run
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run WHERE g.run = ? ORDER BY g.opened_us, g.gate;

-- name: gates_open
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run WHERE g.state = 'open'
ORDER BY g.opened_us, g.run LIMIT ?;

-- name: gates_of_state
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run WHERE g.state = ? ORDER BY g.opened_us, g.run LIMIT ?;

-- name: gates_all
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run ORDER BY g.opened_us, g.run LIMIT ?;

-- name: gates_expired
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run
WHERE g.state = 'open' AND g.expires_us IS NOT NULL AND g.expires_us <= ? ORDER BY g.expires_us LIMIT ?;

-- name: gates_alone
SELECT <gate> FROM gates WHERE run = ? ORDER BY opened_us, gate;

-- name: delete_gates
DELETE FROM gates WHERE run = ?;

-- name: set_timer
INSERT INTO timers (run, timer, due_us) VALUES (?, ?, ?) ON CONFLICT (run, timer) DO UPDATE SET due_us = excluded.due_us;

-- name: drop_timer
DELETE FROM timers WHERE run = ? AND timer = ?;

-- name: timer
SELECT timer, due_us FROM timers WHERE run = ? AND timer = ?;

-- name: timers
SELECT timer, due_us FROM timers WHERE run = ? ORDER BY due_us, timer;

-- name: timers_due
SELECT <r.run>, t.timer, t.due_us FROM timers t JOIN runs r ON r.run = t.run WHERE t.due_us <= ?
ORDER BY t.due_us LIMIT ?;

-- name: delete_timers
DELETE FROM timers WHERE run = ?;

-- name: insert_item
INSERT INTO inbox (key, run, kind, name, item, sender, created_us, taken, body, seal)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: take_item
UPDATE inbox SET taken = ?, body = ?, seal = ? WHERE key = ?;

-- name: item_by_key
SELECT <item> FROM inbox WHERE run = ? AND item = ?;

-- name: item
SELECT <item> FROM inbox WHERE key = ?;

-- name: items_after
SELECT <item> FROM inbox WHERE key > ? AND key <= ? AND taken = 0 ORDER BY key LIMIT ?;

-- name: items_all
SELECT <item> FROM inbox WHERE key > ? AND key <= ? ORDER BY key;

-- name: delete_items
DELETE FROM inbox WHERE key > ? AND key <= ?;

-- name: insert_message
INSERT INTO outbox (key, target, kind, name, item, created_us, body, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: drop_message
DELETE FROM outbox WHERE key = ?;

-- name: messages
SELECT <r.run>, <m.message> FROM outbox m JOIN runs r ON r.run = m.key >> 32 ORDER BY m.created_us, m.key LIMIT ?;

-- name: messages_of_run
SELECT <message> FROM outbox WHERE key > ? AND key <= ? ORDER BY key;

-- name: delete_messages
DELETE FROM outbox WHERE key > ? AND key <= ?;

-- name: usage_runs
SELECT status, count(*) FROM runs GROUP BY status;

-- name: usage
SELECT (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM entries), (SELECT count(*) FROM effects),
    (SELECT count(*) FROM attachments), (SELECT count(*) FROM chunks),
    (SELECT coalesce(sum(length(body)), 0) FROM chunks),
    (SELECT coalesce(sum(length(root)), 0) FROM checkpoints) + (SELECT coalesce(sum(length(root)), 0) FROM attachments);
