-- The statements that differ on PostgreSQL; a name here overrides the one in store/sql/statements.sql.
-- Writes bind columns as arrays, so that one statement writes the rows of many commits.

-- Expressions that several statements share.
-- columns now: (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
-- columns server: (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint || '/' || coalesce((SELECT mark FROM server_mark), '')
-- columns owner_lock: l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) AND ((l.classid::bigint << 32) | l.objid::bigint)

-- Reading.

-- name: runs_page_statuses
AND r.status = ANY(?::text[])

-- name: runs_page_prefix
AND r.run_id >= ? AND r.run_id < ?

-- name: runs_ready
SELECT <run> FROM runs WHERE ready_us > 0 ORDER BY priority DESC, ready_us, run LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: runs_ready_of_workflows
SELECT <run> FROM runs WHERE ready_us > 0 AND workflow = ANY(?::text[]) ORDER BY priority DESC, ready_us, run LIMIT ? FOR UPDATE SKIP LOCKED;

-- name: runs_page_expired_now
AND r.lease_us <= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint

-- name: count_runs_of_workflows
SELECT status, count(*) FROM runs WHERE status IN ('ready', 'running', 'waiting', 'paused', 'rolling_back')
AND workflow = ANY(?::text[]) GROUP BY status;

-- name: checkpoint_by_id
SELECT <checkpoint> FROM checkpoints WHERE named AND run = ? AND lane = ? AND checkpoint_id = ?;

-- name: run_with_head
SELECT <r.run>, <c.checkpoint> FROM runs r LEFT JOIN checkpoints c
ON c.key = r.run * 4294967296 + r.head WHERE r.run_id = ?;

-- A checkpoint with its run and its attachments, in one snapshot; every row repeats the checkpoint.
-- name: whole_newest
SELECT <r.run>, <c.checkpoint>, <a.attachment>
FROM runs r LEFT JOIN checkpoints c ON c.key = r.run * 4294967296 + r.head
LEFT JOIN attachments a ON a.run = c.run AND a.lane = c.lane AND a.checkpoint_id = c.checkpoint_id WHERE r.run_id = ?;

-- name: whole_of_lane
SELECT <r.run>, <c.checkpoint>, <a.attachment>
FROM runs r LEFT JOIN lanes l ON l.run = r.run AND l.lane = ?
LEFT JOIN checkpoints c ON c.key = r.run * 4294967296 + l.head
LEFT JOIN attachments a ON a.run = c.run AND a.lane = c.lane AND a.checkpoint_id = c.checkpoint_id WHERE r.run_id = ?;

-- name: whole_by_id
SELECT <r.run>, <c.checkpoint>, <a.attachment>
FROM runs r LEFT JOIN checkpoints c ON c.named AND c.run = r.run AND c.lane = ? AND c.checkpoint_id = ?
LEFT JOIN attachments a ON a.run = c.run AND a.lane = c.lane AND a.checkpoint_id = c.checkpoint_id WHERE r.run_id = ?;

-- The run and the newest of its checkpoints that match, by the range of its keys.
-- name: found_of_run
SELECT <r.run>, f.* FROM runs r CROSS JOIN LATERAL (SELECT <c.checkpoint> FROM checkpoints c
WHERE c.key > r.run * 4294967296 AND c.key < r.run * 4294967296 + ?

-- name: found_of_run_end
ORDER BY c.key DESC LIMIT ?) AS f (number) WHERE r.run_id = ?

-- name: found_of_run_by_id_end
ORDER BY c.checkpoint_id DESC, c.key DESC LIMIT ?) AS f (number) WHERE r.run_id = ?

-- name: found_of_run_workflow
AND r.workflow = ?

-- name: found_of_run_order
ORDER BY f.number DESC;

-- name: found_of_run_by_id_order
ORDER BY f.checkpoint_id DESC, f.number DESC;

-- OFFSET separates the search of each run: as a join, every checkpoint is compared with every run of the workflow.
-- name: found_of_workflow
SELECT <r.run>, <c.checkpoint> FROM runs r CROSS JOIN LATERAL (SELECT <checkpoint_columns> FROM checkpoints
WHERE key > (r.run << 32) AND key < ((r.run + 1) << 32) OFFSET 0) c WHERE r.workflow = ?

-- name: found_tag
AND position(?::bytea IN c.metadata) > 0

-- LIMIT separates the search of each run's ledger: as a join, all ledgers are read if a family is most of the store.

-- name: effects_of_family
SELECT <r.run>, f.* FROM runs r CROSS JOIN LATERAL (SELECT <effect> FROM effects WHERE run = r.run AND name = ? LIMIT 1) f
WHERE r.family = ? ORDER BY r.run;

-- name: attachments_of_checkpoints
SELECT <a.attachment> FROM unnest(?::text[], ?::text[]) AS n (lane, checkpoint_id) JOIN attachments a
ON a.run = ? AND a.lane = n.lane COLLATE "C" AND a.checkpoint_id = n.checkpoint_id COLLATE "C"
ORDER BY a.lane, a.checkpoint_id, a.name;

-- name: items_after
SELECT <item> FROM inbox WHERE key > ? AND key <= ? AND NOT taken ORDER BY key LIMIT ?;

-- name: items
SELECT <item> FROM inbox WHERE key = ANY(?) ORDER BY key;

-- name: chunks
SELECT hash, body FROM chunks WHERE family = ? AND hash = ANY(?);

-- PostgreSQL has no order of insertion; the place of a row in the table is close to it.
-- name: chunk_sizes
SELECT hash, length(body) FROM chunks WHERE family = ? ORDER BY ctid;

-- Chunks in packs, and the packs that the reader does not have, in one snapshot.
-- name: packed
WITH found AS (SELECT hash, pack, start, size FROM packed WHERE family = ? AND hash = ANY(?))
SELECT hash, pack, start, size, NULL::bytea FROM found
UNION ALL SELECT NULL, pack, 0, 0, body FROM packs WHERE family = ? AND pack IN (SELECT pack FROM found)
    AND pack <> ALL(?::bigint[]);

-- name: about
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), (SELECT max(version) FROM schema_version),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;

-- name: relations_bytes
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r';

-- name: relations_pages
SELECT c.relname::text, pg_relation_size(c.oid) / current_setting('block_size')::bigint FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r';

-- The size of a value that lies beside its row is known without reading it.
-- name: usage_sample
SELECT k.n, k.b, e.n, e.b, f.n, f.b, a.n, a.b, c.n, c.b, d.n, d.b, p.n, p.b FROM
(SELECT count(*) n, coalesce(sum(length(root)), 0)::bigint b FROM checkpoints TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) k,
(SELECT count(*) n, 0::bigint b FROM entries TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) e,
(SELECT count(*) n, 0::bigint b FROM effects TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) f,
(SELECT count(*) n, coalesce(sum(length(root)), 0)::bigint b FROM attachments TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) a,
(SELECT count(*) n, coalesce(sum(length(body)), 0)::bigint b FROM chunks TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) c,
(SELECT count(*) n, 0::bigint b FROM packed TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) d,
(SELECT count(*) n, coalesce(sum(length(body)), 0)::bigint b FROM packs TABLESAMPLE SYSTEM (?::real) REPEATABLE (0)) p;

-- The transaction of a commit.

-- name: lock_runs
SELECT <run> FROM runs WHERE run_id = ANY(?) ORDER BY family, run FOR UPDATE;

-- What most decisions need, by the run's id: requested together with the rows.

-- name: checkpoint_of_run
SELECT <c.checkpoint> FROM checkpoints c JOIN runs r ON r.run = c.run
WHERE c.named AND r.run_id = ? AND c.lane = ? AND c.checkpoint_id = ?;

-- name: effect_of_run
SELECT <f.effect> FROM effects f JOIN runs r ON r.run = f.run WHERE r.run_id = ? AND f.name = ?;

-- name: attachment_of_run
SELECT <a.attachment> FROM attachments a JOIN runs r ON r.run = a.run
WHERE r.run_id = ? AND a.lane = ? AND a.checkpoint_id = ? AND a.name = ?;

-- name: lane_of_run
SELECT <l.lane> FROM lanes l JOIN runs r ON r.run = l.run WHERE r.run_id = ? AND l.lane = ?;

-- name: gate_of_run
SELECT <g.gate> FROM gates g JOIN runs r ON r.run = g.run WHERE r.run_id = ? AND g.gate = ?;

-- name: timer_of_run
SELECT <t.timer> FROM timers t JOIN runs r ON r.run = t.run WHERE r.run_id = ? AND t.timer = ?;

-- name: item_of_run
SELECT <i.item> FROM inbox i JOIN runs r ON r.run = i.run WHERE r.run_id = ? AND i.item = ?;

-- name: items_of_run
SELECT <i.item> FROM unnest(?::bigint[]) AS n (number) CROSS JOIN runs r JOIN inbox i
ON i.key = r.run * 4294967296 + n.number WHERE r.run_id = ? ORDER BY i.key;

-- name: lock_family
SELECT <run> FROM runs WHERE family = ? ORDER BY run FOR UPDATE;

-- The time of leases. The setting, local to the transaction, releases the locks of a client that disappears.
-- name: moment
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    set_config('idle_in_transaction_session_timeout', ?, true);

-- name: new_numbers
SELECT nextval(?::regclass) FROM unnest(?::text[]) AS wanted (run_id)
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = wanted.run_id COLLATE "C");

-- name: recent_commits
SELECT commit_id || recent FROM runs WHERE run = ?;

-- name: barrier
SELECT pg_logical_emit_message(true, 'holdfast', 'settled');

-- name: notify
SELECT pg_notify(?, run_id) FROM unnest(?::text[]) AS n (run_id);

-- The fast path of saves, on cached rows: one statement, one round trip, one transaction.
-- A statement for many commits divides by zero, so that nothing is written, if any cached row is out of date.

-- name: save_one
WITH moved AS (
    UPDATE runs SET <progress_changes>, recent = substr(commit_id || recent, 1, 128)
    WHERE run = ? AND commit_id = ? RETURNING run
)
INSERT INTO checkpoints (<checkpoint_columns>)
SELECT <checkpoint_casts> FROM moved;

-- name: append_one
WITH moved AS (
    UPDATE runs SET <appended_changes>, recent = substr(commit_id || recent, 1, 128)
    WHERE run = ? AND commit_id = ? RETURNING run
)
INSERT INTO entries (<entry_columns>) SELECT <entry_casts> FROM moved;

-- name: attach_new
WITH moved AS (
    UPDATE runs SET <attached_changes>, recent = substr(commit_id || recent, 1, 128)
    WHERE run = ? AND commit_id = ? RETURNING run, family
), added AS (
    INSERT INTO attachments (<attachment_columns>)
    SELECT <n.attachment_columns> FROM moved, unnest(<attachment_arrays>) AS n (<attachment_columns>)
), stored AS (
    INSERT INTO chunks (family, hash, body)
    SELECT moved.family, n.hash, n.body FROM moved, unnest(?::bytea[], ?::bytea[]) AS n (hash, body)
    WHERE NOT EXISTS (SELECT 1 FROM packed k WHERE k.family = moved.family AND k.hash = n.hash)
    ORDER BY n.hash ON CONFLICT DO NOTHING RETURNING family, hash
)
SELECT family, NULL::bytea FROM moved UNION ALL SELECT family, hash FROM stored;

-- name: save_one_with_chunks
WITH moved AS (
    UPDATE runs SET <progress_changes>, recent = substr(commit_id || recent, 1, 128)
    WHERE run = ? AND commit_id = ? RETURNING run, family
), added AS (
    INSERT INTO checkpoints (<checkpoint_columns>)
    SELECT <checkpoint_casts> FROM moved
), stored AS (
    INSERT INTO chunks (family, hash, body)
    SELECT moved.family, n.hash, n.body FROM moved, unnest(?::bytea[], ?::bytea[]) AS n (hash, body)
    WHERE NOT EXISTS (SELECT 1 FROM packed k WHERE k.family = moved.family AND k.hash = n.hash)
    ORDER BY n.hash ON CONFLICT DO NOTHING RETURNING family, hash
)
SELECT family, NULL::bytea FROM moved UNION ALL SELECT family, hash FROM stored;

-- Many commits: the parts of one statement.

-- name: move_progress
WITH moved AS (
    UPDATE runs AS r SET <progress_changes_from_n>, recent = substr(r.commit_id || r.recent, 1, 128)
    FROM unnest(?::bigint[], ?::bytea[], <progress_changing_arrays>) AS n (run, old_commit_id, <progress_changing>)
    WHERE r.run = n.run AND r.commit_id = n.old_commit_id RETURNING r.run
)

-- name: move_runs
WITH moved AS (
    UPDATE runs AS r SET <run_changes_from_n>, recent = substr(r.commit_id || r.recent, 1, 128)
    FROM unnest(?::bigint[], ?::bytea[], <run_changing_arrays>) AS n (run, old_commit_id, <run_changing>)
    WHERE r.run = n.run AND r.commit_id = n.old_commit_id RETURNING r.run
)

-- name: add_checkpoints
, added AS (
    INSERT INTO checkpoints (<checkpoint_columns>)
    SELECT <n.checkpoint_columns> FROM unnest(<checkpoint_arrays>)
        AS n (<checkpoint_columns>) JOIN moved ON moved.run = n.run
)

-- name: add_entries
, appended AS (
    INSERT INTO entries (<entry_columns>)
    SELECT <n.entry_columns> FROM unnest(<entry_arrays>)
        AS n (<entry_columns>) JOIN moved ON moved.run = n.key >> 32
)

-- name: add_effects
, begun AS (
    INSERT INTO effects (<effect_columns>)
    SELECT <n.effect_columns> FROM unnest(<effect_arrays>) AS n (<effect_columns>) JOIN moved ON moved.run = n.run
)

-- name: add_gates
, opened AS (
    INSERT INTO gates (<gate_columns>)
    SELECT <n.gate_columns> FROM unnest(<gate_arrays>) AS n (<gate_columns>) JOIN moved ON moved.run = n.run
)

-- name: add_timers
, armed AS (
    INSERT INTO timers (<timer_columns>)
    SELECT <n.timer_columns> FROM unnest(<timer_arrays>) AS n (<timer_columns>) JOIN moved ON moved.run = n.run
)

-- name: add_chunks
, stored AS (
    INSERT INTO chunks (family, hash, body)
    SELECT n.family, n.hash, n.body FROM unnest(?::bigint[], ?::bigint[], ?::bytea[], ?::bytea[])
        AS n (run, family, hash, body) JOIN moved ON moved.run = n.run
    WHERE NOT EXISTS (SELECT 1 FROM packed k WHERE k.family = n.family AND k.hash = n.hash)
    ORDER BY n.family, n.hash ON CONFLICT DO NOTHING RETURNING family, hash
)

-- name: moved_or_nothing
SELECT 1 / ((SELECT count(*) FROM moved) = ?)::integer, NULL::bytea;

-- name: stored_or_nothing
SELECT 1 / ((SELECT count(*) FROM moved) = ?)::integer, NULL::bytea UNION ALL SELECT family, hash FROM stored;

-- All other commits: the rows of a decision, one statement for each kind.

-- name: insert_runs
INSERT INTO runs (<run>) SELECT <n.run> FROM unnest(<run_arrays>) AS n (<run>);

-- name: update_runs
UPDATE runs AS r SET <run_changes_from_n>, recent = substr(r.commit_id || r.recent, 1, 128)
FROM unnest(<run_arrays>) AS n (<run>) WHERE r.run = n.run;

-- name: insert_chunks
INSERT INTO chunks (family, hash, body)
SELECT n.family, n.hash, n.body FROM unnest(?::bigint[], ?::bytea[], ?::bytea[]) AS n (family, hash, body)
WHERE NOT EXISTS (SELECT 1 FROM packed k WHERE k.family = n.family AND k.hash = n.hash)
ORDER BY n.family, n.hash ON CONFLICT DO NOTHING RETURNING family, hash;

-- name: insert_checkpoints
INSERT INTO checkpoints (<checkpoint_columns>) SELECT * FROM unnest(<checkpoint_arrays>);

-- name: replace_checkpoints
UPDATE checkpoints AS c SET <checkpoint_changes_from_n> FROM unnest(<checkpoint_arrays>) AS n (<checkpoint_columns>)
WHERE c.key = n.key;

-- name: set_lanes
INSERT INTO lanes (<lane_columns>) SELECT * FROM unnest(<lane_arrays>)
ON CONFLICT (run, lane) DO UPDATE SET <lane_changes_from_excluded>;

-- name: insert_entries
INSERT INTO entries (<entry_columns>) SELECT * FROM unnest(<entry_arrays>);

-- name: delete_tags
DELETE FROM tags USING unnest(?::bytea[], ?::bytea[], ?::bigint[]) AS n (key, value, run)
WHERE tags.key = n.key AND tags.value = n.value AND tags.run = n.run;

-- name: insert_tags
INSERT INTO tags (key, value, run) SELECT * FROM unnest(?::bytea[], ?::bytea[], ?::bigint[]) ON CONFLICT DO NOTHING;

-- name: set_effects
INSERT INTO effects (<effect_columns>) SELECT * FROM unnest(<effect_arrays>)
ON CONFLICT (key) DO UPDATE SET <effect_changes_from_excluded>;

-- name: set_attachments
INSERT INTO attachments (<attachment_columns>) SELECT * FROM unnest(<attachment_arrays>)
ON CONFLICT (run, lane, checkpoint_id, name) DO UPDATE SET <attachment_changes_from_excluded>;

-- name: set_gates
INSERT INTO gates (<gate_columns>) SELECT * FROM unnest(<gate_arrays>)
ON CONFLICT (run, gate) DO UPDATE SET <gate_changes_from_excluded>;

-- name: drop_timers
DELETE FROM timers USING unnest(?::bigint[], ?::text[]) AS n (run, timer)
WHERE timers.run = n.run AND timers.timer = n.timer COLLATE "C";

-- name: set_timers
INSERT INTO timers (<timer_columns>) SELECT * FROM unnest(<timer_arrays>)
ON CONFLICT (run, timer) DO UPDATE SET <timer_changes_from_excluded>;

-- name: insert_items
INSERT INTO inbox (<item_columns>) SELECT * FROM unnest(<item_arrays>);

-- name: take_items
UPDATE inbox AS i SET <item_changes_from_n>
FROM unnest(?::bigint[], <item_changing_arrays>) AS n (key, <item_changing>) WHERE i.key = n.key;

-- name: insert_messages
INSERT INTO outbox (<message_columns>) SELECT * FROM unnest(<message_arrays>);

-- name: drop_messages
DELETE FROM outbox WHERE key = ANY(?::bigint[]);

-- Removal.

-- name: delete_checkpoints_by_key
DELETE FROM checkpoints WHERE key = ANY(?::bigint[]);

-- name: delete_attachments_of_checkpoints
DELETE FROM attachments USING unnest(?::bigint[], ?::text[], ?::text[]) AS n (run, lane, checkpoint_id)
WHERE attachments.run = n.run AND attachments.lane = n.lane COLLATE "C"
    AND attachments.checkpoint_id = n.checkpoint_id COLLATE "C";

-- name: delete_chunks_by_hash
DELETE FROM chunks WHERE family = ? AND hash = ANY(?::bytea[]) RETURNING hash, length(body);

-- name: delete_places_by_hash
DELETE FROM packed WHERE family = ? AND hash = ANY(?::bytea[]) RETURNING hash;

-- Packs. The rows of the family are locked.

-- name: count_chunks
SELECT count(*) FROM (SELECT hash FROM chunks WHERE family = ? AND hash = ANY(?::bytea[])
UNION SELECT hash FROM packed WHERE family = ? AND hash = ANY(?::bytea[])) AS found;

-- name: new_pack_number
SELECT nextval(?::regclass);

-- name: set_places
INSERT INTO packed (family, hash, pack, start, size)
SELECT * FROM unnest(?::bigint[], ?::bytea[], ?::bigint[], ?::bigint[], ?::bigint[])
ON CONFLICT (family, hash) DO UPDATE SET pack = excluded.pack, start = excluded.start, size = excluded.size;

-- name: is_family_left
SELECT EXISTS (SELECT 1 FROM runs WHERE family = ?);

-- Owners and their sessions. Times are those of the server.

-- name: keep_idle_session
SELECT set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'idle_session_timeout';

-- The old connection of an owner that has its lock again, if the server still keeps it.
-- name: end_old_session
SELECT pg_terminate_backend(l.pid) FROM pg_catalog.pg_locks l WHERE l.pid = ?::bigint AND <owner_lock> = ?;

-- name: mark_server
INSERT INTO server_mark (number, mark) VALUES (1, ?) ON CONFLICT DO NOTHING;

-- name: begin_session
INSERT INTO owners AS o (owner, lock_key, token, session, server, grace_us, announced_us, missing_us, dead)
VALUES (?, ?, ?, 1, <server>, ?, <now>, NULL, false)
ON CONFLICT (owner) DO UPDATE SET lock_key = excluded.lock_key, token = excluded.token, session = o.session + 1,
    server = excluded.server, grace_us = excluded.grace_us, announced_us = excluded.announced_us, missing_us = NULL,
    dead = false;

-- name: resume_session
UPDATE owners SET session = session + 1, server = <server>, missing_us = NULL
WHERE owner = ? AND token = ? AND NOT dead;

-- name: end_session
DELETE FROM owners WHERE owner = ? AND token = ?;

-- name: forget_owner
DELETE FROM owners WHERE owner = ?;

-- The row is read before the locks: a session that is unchanged when the row is updated has lost its lock.
-- name: owners_absent
SELECT o.owner, o.token, o.session, o.dead,
    o.missing_us IS NULL OR (o.missing_us + o.grace_us <= <now> AND o.server = <server>)
FROM owners o WHERE (? OR o.owner = ANY(?::text[])) AND (o.dead OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_locks l
WHERE <owner_lock> = o.lock_key));

-- name: mark_absent
UPDATE owners AS o SET missing_us = coalesce(o.missing_us, <now>),
    dead = o.missing_us IS NOT NULL AND o.missing_us + o.grace_us <= <now> AND o.server = <server>
FROM unnest(?::text[], ?::bytea[], ?::bigint[]) AS n (owner, token, session)
WHERE o.owner = n.owner COLLATE "C" AND o.token = n.token AND o.session = n.session AND NOT o.dead
RETURNING o.owner, o.dead;

-- name: runs_held_by
SELECT <run> FROM runs WHERE owner <> '' AND owner = ANY(?::text[]) ORDER BY run;

-- name: forget_dead_owners
DELETE FROM owners AS o WHERE (o.dead OR o.missing_us <= <now> - ?::bigint) AND o.owner <> ALL(?::text[])
    AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.owner <> '' AND r.owner = o.owner);

-- name: forget_workers
DELETE FROM workers WHERE owner = ? OR until_us <= <now>;

-- name: register_worker
INSERT INTO workers (owner, workflows, until_us) VALUES (?, ?::text[], <now> + ?::bigint)
ON CONFLICT (owner) DO UPDATE SET workflows = excluded.workflows, until_us = excluded.until_us;

-- name: workers
SELECT owner, workflows FROM workers WHERE until_us > <now> ORDER BY owner;
