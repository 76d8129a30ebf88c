-- Every statement the SQL stores use, by name. Values are always bound, never written into the text.
-- <name> stands for a list that statements.py derives from a row type, or for a list that a `columns` line defines;
-- <alias.name> for the list with a table's alias before each column.

-- The counter is the largest number of a run that was deleted: no number is used twice.
-- name: new_run_number
SELECT max(value, coalesce((SELECT max(run) FROM runs), 0)) + 1 FROM counters WHERE name = 'run';

-- name: skip_run_number
UPDATE counters SET value = max(value, coalesce((SELECT max(run) FROM runs), 0)) + 1 WHERE name = 'run';

-- name: note_deleted_run
UPDATE counters SET value = ? WHERE name = 'run' AND value < ?;

-- name: insert_run
INSERT INTO runs (<run>) VALUES (<run_values>);

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

-- Ids with the prefix are found first, by the index of ids, whatever the other filters are; they are few.
-- name: runs_page_of_prefix
WITH p AS MATERIALIZED (SELECT run FROM runs WHERE run_id >= ? AND run_id < ?)
SELECT <r.run> FROM p CROSS JOIN runs r WHERE r.run = p.run AND r.run < ?

-- name: runs_page_of_prefix_end
ORDER BY r.run DESC LIMIT ?;

-- How many ids have the prefix, up to a limit, and the largest number of a run.
-- name: count_prefix
SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE run_id >= ? AND run_id < ? LIMIT ?) c),
    (SELECT coalesce(max(run), 0) FROM runs);

-- Of many ids with the prefix the newest are found by their numbers. The sign keeps SQLite from using the index of ids.
-- name: runs_page_prefix
AND +r.run_id >= ? AND +r.run_id < ?

-- name: runs_page_first
AND r.run >= ?

-- name: runs_page_of_tag_first
AND t.run >= ?

-- Claimed runs are few among many: found by their own index, and then sorted.
-- name: runs_page_of_claims
SELECT <r.run> FROM runs r WHERE r.owner <> '' AND +r.run < ?

-- name: runs_page_of_claims_end
ORDER BY +r.run DESC LIMIT ?;

-- name: runs_page_claimed
AND r.owner <> ''

-- name: runs_page_expired
AND (r.lease_us <= ? OR r.boot <> ?)

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
SELECT <run> FROM runs WHERE ready_us > 0 ORDER BY priority DESC, ready_us, run LIMIT ?;

-- name: runs_ready_of_workflows
SELECT <run> FROM runs WHERE ready_us > 0 AND +workflow IN (SELECT value FROM json_each(?))
ORDER BY priority DESC, ready_us, run LIMIT ?;

-- name: delete_run
DELETE FROM runs WHERE run = ?;

-- name: insert_tag
INSERT INTO tags (key, value, run) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: delete_tag
DELETE FROM tags WHERE key = ? AND value = ? AND run = ?;

-- name: insert_checkpoint
INSERT INTO checkpoints (<checkpoint_columns>) VALUES (<checkpoint_values>);

-- name: replace_checkpoint
UPDATE checkpoints SET <checkpoint_changes> WHERE key = ?;

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

-- The search for checkpoints: of one run by the range of its keys, of all runs by their dates, of both by their ids.
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
INSERT INTO lanes (<lane_columns>) VALUES (<lane_values>)
ON CONFLICT (run, lane) DO UPDATE SET <lane_changes_from_excluded>;

-- name: lane
SELECT <lane> FROM lanes WHERE run = ? AND lane = ?;

-- name: delete_lane
DELETE FROM lanes WHERE run = ? AND lane = ?;

-- name: delete_lanes
DELETE FROM lanes WHERE run = ?;

-- name: insert_chunk
INSERT INTO chunks (family, hash, body) SELECT ?, ?, ?
WHERE NOT EXISTS (SELECT 1 FROM packed WHERE family = ? AND hash = ?) ON CONFLICT DO NOTHING;

-- Many chunks are read at once; those that are not needed are NULL.
-- columns hashes: ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
-- name: chunks_in
SELECT hash, body FROM chunks WHERE family = ? AND hash IN (<hashes>);

-- name: chunk_sizes
SELECT hash, length(body) FROM chunks WHERE family = ? ORDER BY id;

-- name: place
SELECT pack, start, size FROM packed WHERE family = ? AND hash = ?;

-- name: places_in
SELECT hash, pack, start, size FROM packed WHERE family = ? AND hash IN (<hashes>);

-- name: places
SELECT hash, pack, start, size FROM packed WHERE family = ? ORDER BY pack, start;

-- name: pack_body
SELECT body FROM packs WHERE pack = ? AND family = ?;

-- name: pack_sizes
SELECT pack, size, length(body) FROM packs WHERE family = ? ORDER BY pack;

-- name: new_pack_number
UPDATE counters SET value = value + 1 WHERE name = 'pack' RETURNING value;

-- name: insert_pack
INSERT INTO packs (pack, family, size, body) VALUES (?, ?, ?, ?);

-- name: set_place
INSERT INTO packed (family, hash, pack, start, size) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (family, hash) DO UPDATE SET pack = excluded.pack, start = excluded.start, size = excluded.size;

-- name: delete_place
DELETE FROM packed WHERE family = ? AND hash = ?;

-- name: delete_empty_packs
DELETE FROM packs WHERE family = ? AND pack NOT IN (SELECT pack FROM packed WHERE family = ?) RETURNING length(body);

-- name: delete_places
DELETE FROM packed WHERE family = ?;

-- name: delete_packs
DELETE FROM packs WHERE family = ?;

-- name: delete_chunk
DELETE FROM chunks WHERE family = ? AND hash = ? RETURNING length(body);

-- name: delete_chunks
DELETE FROM chunks WHERE family = ?;

-- name: insert_entry
INSERT INTO entries (<entry_columns>) VALUES (<entry_values>);

-- name: entries_after
SELECT <entry> FROM entries WHERE key > ? AND key <= ? ORDER BY key LIMIT ?;

-- name: entry_at
SELECT <entry> FROM entries WHERE key > ? AND key <= ? ORDER BY key DESC LIMIT 1;

-- name: entries_pruned
SELECT <entry> FROM entries WHERE key > ? AND key <= ? AND kind = 'pruned' ORDER BY key;

-- name: delete_entries
DELETE FROM entries WHERE key > ? AND key <= ?;

-- name: set_effect
INSERT INTO effects (<effect_columns>) VALUES (<effect_values>)
ON CONFLICT (key) DO UPDATE SET <effect_changes_from_excluded>;

-- name: effect
SELECT <effect> FROM effects WHERE run = ? AND name = ?;

-- name: effects_after
SELECT <effect> FROM effects WHERE key > ? AND key <= ? ORDER BY key LIMIT ?;

-- name: effects_of_family
SELECT <r.run>, <f.effect> FROM runs r JOIN effects f ON f.run = r.run AND f.name = ? WHERE r.family = ? ORDER BY r.run;

-- name: delete_effects
DELETE FROM effects WHERE key > ? AND key <= ?;

-- name: set_attachment
INSERT INTO attachments (<attachment_columns>) VALUES (<attachment_values>)
ON CONFLICT (run, lane, checkpoint_id, name) DO UPDATE SET <attachment_changes_from_excluded>;

-- name: attachment
SELECT <attachment> FROM attachments WHERE run = ? AND lane = ? AND checkpoint_id = ? AND name = ?;

-- name: attachments_of_checkpoint
SELECT <attachment> FROM attachments WHERE run = ? AND lane = ? AND checkpoint_id = ? ORDER BY name;

-- name: attachments
SELECT <attachment> FROM attachments WHERE run = ? ORDER BY lane, checkpoint_id, name LIMIT ?;

-- name: attachment_roots
SELECT root FROM attachments WHERE key > ? AND key <= ?;

-- name: delete_attachments_of_checkpoint
DELETE FROM attachments WHERE run = ? AND lane = ? AND checkpoint_id = ?;

-- name: delete_attachments
DELETE FROM attachments WHERE key > ? AND key <= ?;

-- name: set_gate
INSERT INTO gates (<gate_columns>) VALUES (<gate_values>)
ON CONFLICT (run, gate) DO UPDATE SET <gate_changes_from_excluded>;

-- name: gate
SELECT <gate> FROM gates WHERE run = ? AND gate = ?;

-- name: gates_of_run
SELECT <gate> FROM gates WHERE run = ? ORDER BY opened_us, gate LIMIT ?;

-- name: gates_open
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run
WHERE g.state = 'open' AND (g.opened_us, g.run, g.gate) > (?, ?, ?)
ORDER BY g.opened_us, g.run, g.gate LIMIT ?;

-- name: gates_of_state
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run
WHERE g.state = ? AND (g.opened_us, g.run, g.gate) > (?, ?, ?)
ORDER BY g.opened_us, g.run, g.gate LIMIT ?;

-- name: gates_all
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run
WHERE (g.opened_us, g.run, g.gate) > (?, ?, ?) ORDER BY g.opened_us, g.run, g.gate LIMIT ?;

-- name: count_open_gates
SELECT count(*) FROM gates WHERE state = 'open';

-- name: gates_expired
SELECT <r.run>, <g.gate> FROM gates g JOIN runs r ON r.run = g.run
WHERE g.state = 'open' AND g.expires_us IS NOT NULL AND g.expires_us <= ? ORDER BY g.expires_us LIMIT ?;

-- name: delete_gates
DELETE FROM gates WHERE run = ?;

-- name: set_timer
INSERT INTO timers (<timer_columns>) VALUES (<timer_values>)
ON CONFLICT (run, timer) DO UPDATE SET <timer_changes_from_excluded>;

-- name: drop_timer
DELETE FROM timers WHERE run = ? AND timer = ?;

-- name: timer
SELECT <timer> FROM timers WHERE run = ? AND timer = ?;

-- name: timers
SELECT <timer> FROM timers WHERE run = ? ORDER BY due_us, timer LIMIT ?;

-- name: timers_due
SELECT <r.run>, <t.timer> FROM timers t JOIN runs r ON r.run = t.run WHERE t.due_us <= ?
ORDER BY t.due_us LIMIT ?;

-- name: delete_timers
DELETE FROM timers WHERE run = ?;

-- name: insert_item
INSERT INTO inbox (<item_columns>) VALUES (<item_values>);

-- name: take_item
UPDATE inbox SET <item_changes> WHERE key = ?;

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
INSERT INTO outbox (<message_columns>) VALUES (<message_values>);

-- name: drop_message
DELETE FROM outbox WHERE key = ?;

-- name: messages
SELECT <r.run>, <m.message> FROM outbox m JOIN runs r ON r.run = m.key >> 32 ORDER BY m.created_us, m.key LIMIT ?;

-- name: messages_after
SELECT <message> FROM outbox WHERE key > ? AND key <= ? ORDER BY key LIMIT ?;

-- name: delete_messages
DELETE FROM outbox WHERE key > ? AND key <= ?;

-- name: publish
INSERT INTO catalog (name, body) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET body = excluded.body;

-- name: unpublish
DELETE FROM catalog WHERE name = ?;

-- name: published
SELECT name, body FROM catalog ORDER BY name;

-- Runs that have not ended are counted, those that have ended only up to a limit, with the first and the last of them.
-- BETWEEN lets PostgreSQL sort by the status too, so that it uses the index of statuses and not that of numbers.
-- name: count_runs
SELECT status, count(*), 0, 0 FROM runs WHERE status IN ('ready', 'running', 'waiting', 'paused', 'rolling_back')
GROUP BY status
UNION ALL SELECT 'completed',
    (SELECT count(*) FROM (SELECT 1 FROM runs WHERE status BETWEEN 'completed' AND 'completed' ORDER BY status, run LIMIT ?) c),
    (SELECT run FROM runs WHERE status BETWEEN 'completed' AND 'completed' ORDER BY status, run LIMIT 1),
    (SELECT run FROM runs WHERE status BETWEEN 'completed' AND 'completed' ORDER BY status DESC, run DESC LIMIT 1)
UNION ALL SELECT 'failed',
    (SELECT count(*) FROM (SELECT 1 FROM runs WHERE status BETWEEN 'failed' AND 'failed' ORDER BY status, run LIMIT ?) c),
    (SELECT run FROM runs WHERE status BETWEEN 'failed' AND 'failed' ORDER BY status, run LIMIT 1),
    (SELECT run FROM runs WHERE status BETWEEN 'failed' AND 'failed' ORDER BY status DESC, run DESC LIMIT 1)
UNION ALL SELECT 'cancelled',
    (SELECT count(*) FROM (SELECT 1 FROM runs WHERE status BETWEEN 'cancelled' AND 'cancelled' ORDER BY status, run LIMIT ?) c),
    (SELECT run FROM runs WHERE status BETWEEN 'cancelled' AND 'cancelled' ORDER BY status, run LIMIT 1),
    (SELECT run FROM runs WHERE status BETWEEN 'cancelled' AND 'cancelled' ORDER BY status DESC, run DESC LIMIT 1);

-- The first rows of each stratum of the runs of a status, which is `width` numbers wide: how many were read, and the last.
-- name: strata_of_status
WITH RECURSIVE p(low, high, width) AS (SELECT ?, ?, ?),
s(a, b) AS (SELECT low, low + width FROM p UNION ALL SELECT s.b, s.b + p.width FROM s CROSS JOIN p WHERE s.b <= p.high)
SELECT s.a, r.status, count(*), max(r.run) FROM s CROSS JOIN runs r
WHERE r.status = ? AND r.run >= s.a AND r.run <= coalesce((SELECT x.run FROM runs x
WHERE x.status = ? AND x.run >= s.a AND x.run < s.b ORDER BY x.run LIMIT 1 OFFSET ?), s.b - 1)
GROUP BY s.a, r.status ORDER BY s.a;

-- name: strata_of_workflow
WITH RECURSIVE p(low, high, width) AS (SELECT ?, ?, ?),
s(a, b) AS (SELECT low, low + width FROM p UNION ALL SELECT s.b, s.b + p.width FROM s CROSS JOIN p WHERE s.b <= p.high)
SELECT s.a, r.status, count(*), max(r.run) FROM s CROSS JOIN runs r
WHERE r.workflow = ? AND r.run >= s.a AND r.run <= coalesce((SELECT x.run FROM runs x
WHERE x.workflow = ? AND x.run >= s.a AND x.run < s.b ORDER BY x.run LIMIT 1 OFFSET ?), s.b - 1)
GROUP BY s.a, r.status ORDER BY s.a;

-- The names of all workflows, by one search of the index each.
-- name: workflows
WITH RECURSIVE w(name) AS (SELECT min(workflow) FROM runs
UNION ALL SELECT (SELECT min(workflow) FROM runs WHERE workflow > w.name) FROM w WHERE w.name IS NOT NULL)
SELECT name FROM w WHERE name IS NOT NULL;

-- name: count_runs_of_workflows
SELECT status, count(*) FROM runs WHERE status IN ('ready', 'running', 'waiting', 'paused', 'rolling_back')
AND +workflow IN (SELECT value FROM json_each(?)) GROUP BY status;

-- name: count_ended_of_workflow
SELECT status, count(*), (SELECT min(run) FROM runs WHERE workflow = ?), (SELECT max(run) FROM runs WHERE workflow = ?)
FROM (SELECT status FROM runs WHERE workflow = ? ORDER BY run LIMIT ?) r GROUP BY status;

-- name: usage
SELECT (SELECT count(*) FROM checkpoints), (SELECT count(*) FROM entries), (SELECT count(*) FROM effects),
    (SELECT count(*) FROM attachments), (SELECT count(*) FROM chunks) + (SELECT count(*) FROM packed),
    (SELECT coalesce(sum(length(body)), 0) FROM chunks) + (SELECT coalesce(sum(length(body)), 0) FROM packs),
    (SELECT coalesce(sum(length(root)), 0) FROM checkpoints) + (SELECT coalesce(sum(length(root)), 0) FROM attachments);

-- Samples of SQLite: the number of each row, and how many bytes it has.
-- name: sample_of_checkpoints
SELECT rowid, length(root) FROM checkpoints

-- name: sample_of_entries
SELECT rowid, 0 FROM entries

-- name: sample_of_effects
SELECT rowid, 0 FROM effects

-- name: sample_of_attachments
SELECT rowid, length(root) FROM attachments

-- name: sample_of_chunks
SELECT rowid, length(body) FROM chunks

-- name: sample_of_packs
SELECT rowid, length(body) FROM packs

-- name: sample_of_pack_sizes
SELECT rowid, size FROM packs

-- name: sample_from
WHERE rowid >= ? AND rowid < ? ORDER BY rowid LIMIT ?;

-- name: sample_before
WHERE rowid < ? ORDER BY rowid DESC LIMIT 1;

-- name: packed_size
SELECT avg(size) FROM (SELECT size FROM packed LIMIT 1000) p;

-- The checks of SQLite: columns that no checksum covers. Each statement sees one moment.
-- name: rows_of_another_run
SELECT 'checkpoint', c.key & 4294967295, r.run_id, c.run FROM checkpoints c JOIN runs r ON r.run = c.key >> 32
WHERE c.run <> c.key >> 32
UNION ALL SELECT 'effect', f.key & 4294967295, r.run_id, f.run FROM effects f JOIN runs r ON r.run = f.key >> 32
WHERE f.run <> f.key >> 32
UNION ALL SELECT 'attachment', a.key & 4294967295, r.run_id, a.run FROM attachments a JOIN runs r ON r.run = a.key >> 32
WHERE a.run <> a.key >> 32
UNION ALL SELECT 'inbox item', i.key & 4294967295, r.run_id, i.run FROM inbox i JOIN runs r ON r.run = i.key >> 32
WHERE i.run <> i.key >> 32;

-- name: rows_without_run
SELECT DISTINCT 'checkpoints', key >> 32 FROM checkpoints WHERE key >> 32 NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'entries', key >> 32 FROM entries WHERE key >> 32 NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'effects', key >> 32 FROM effects WHERE key >> 32 NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'attachments', key >> 32 FROM attachments WHERE key >> 32 NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'inbox items', key >> 32 FROM inbox WHERE key >> 32 NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'outbox messages', key >> 32 FROM outbox WHERE key >> 32 NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'gates', run FROM gates WHERE run NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'timers', run FROM timers WHERE run NOT IN (SELECT run FROM runs)
UNION ALL SELECT DISTINCT 'lanes', run FROM lanes WHERE run NOT IN (SELECT run FROM runs);

-- name: rows_numbered_zero
SELECT 'checkpoint', key >> 32 FROM checkpoints WHERE key & 4294967295 = 0
UNION ALL SELECT 'attachment', key >> 32 FROM attachments WHERE key & 4294967295 = 0
UNION ALL SELECT 'inbox item', key >> 32 FROM inbox WHERE key & 4294967295 = 0
UNION ALL SELECT 'outbox message', key >> 32 FROM outbox WHERE key & 4294967295 = 0;

-- name: rows_with_invalid_flag
SELECT 'checkpoint', key & 4294967295, key >> 32 FROM checkpoints WHERE named NOT IN (0, 1)
UNION ALL SELECT 'effect', key & 4294967295, key >> 32 FROM effects WHERE reversible NOT IN (0, 1)
UNION ALL SELECT 'inbox item', key & 4294967295, key >> 32 FROM inbox WHERE taken NOT IN (0, 1);

-- name: lanes_without_head
SELECT r.run_id, l.lane FROM lanes l JOIN runs r ON r.run = l.run
LEFT JOIN checkpoints c ON c.key = l.run * 4294967296 + l.head
WHERE c.key IS NULL OR c.lane <> l.lane OR c.checkpoint_id <> l.head_id OR c.step <> l.step;

-- name: items_taken
SELECT r.run_id, r.incarnation, <i.item> FROM inbox i JOIN runs r ON r.run = i.key >> 32 WHERE i.taken <> 0;

-- name: inboxes_miscounted
SELECT r.run_id, r.inbox, coalesce(i.items, 0) FROM runs r
LEFT JOIN (SELECT key >> 32 AS run, count(*) AS items FROM inbox GROUP BY key >> 32) i ON i.run = r.run
WHERE r.inbox <> coalesce(i.items, 0);
