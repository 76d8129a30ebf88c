"""Opening a PostgreSQL store: the driver, URLs with secrets, durability, and the schema."""

from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from holdfast import InvalidInput
from holdfast.errors import StorageFailed
from holdfast.store.postgres.migrations import VERSION, sql_text
from holdfast.store.postgres.settings import read_url
from tests.store.postgres.server import free_port, newest
from tests.store.postgres.shared_servers import new_schema, new_url, shared

SECRET = "s3cret-pass"


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


# --- the driver ------------------------------------------------------------------------------------------------------


def test_importing_holdfast_loads_no_driver() -> None:
    process = run_python("import sys, holdfast; print('psycopg' in sys.modules)")
    assert process.communicate()[0].strip() == "False"


def test_a_missing_driver_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import holdfast; holdfast.open('postgresql://h/d')"
    said = run_python(code).communicate()[0]
    assert 'pip install "holdfast[postgres]"' in said
    assert "InvalidInput" in said


# --- URLs and secrets ------------------------------------------------------------------------------------------------


def test_a_url_is_shown_without_its_secrets() -> None:
    for url in (
        f"postgresql://ana:{SECRET}@db.example:5433/runs?schema=mine&sslmode=require",
        f"postgres://ana@db.example:5433/runs?schema=mine&password={SECRET}&sslmode=require",
    ):
        settings = read_url(url)
        assert settings.shown == "postgresql://ana@db.example:5433/runs?schema=mine"
        assert settings.conninfo["password"] == SECRET
        assert settings.conninfo["sslmode"] == "require"
        assert (settings.schema, settings.pool_size, settings.relaxed) == ("mine", 8, False)
        assert "schema" not in settings.conninfo
    assert read_url("postgresql:///?pool_size=3").schema == "holdfast"


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        (f"ana:{SECRET}@h1:5432,h2:5433/runs", "ana@h1:5432,h2:5433/runs?schema=holdfast"),
        (f"ana:{SECRET}@h1:5432,h2/runs", "ana@h1:5432,h2/runs?schema=holdfast"),
        ("h1,h2/runs?port=5433", "h1:5433,h2:5433/runs?schema=holdfast"),
        (
            f"ana@h1,h2/runs?password={SECRET}&target_session_attrs=read-write",
            "ana@h1,h2/runs?schema=holdfast&target_session_attrs=read-write",
        ),
        (f"ana:{SECRET}@[::1]:5432/runs", "ana@[::1]:5432/runs?schema=holdfast"),
        (f"ana:{SECRET}@[::1]:5432,[fe80::2]:5433/runs", "ana@[::1]:5432,[fe80::2]:5433/runs?schema=holdfast"),
        (f"ana:{SECRET}@h1:5432,[::1]:5433/runs", "ana@h1:5432,[::1]:5433/runs?schema=holdfast"),
        (f"a%40b:{SECRET}%2F%40@h1/runs%2F1", "a%40b@h1/runs%2F1?schema=holdfast"),
        (f"ana:{SECRET}@/runs?host=/tmp/pg&port=5433", "ana@:5433/runs?schema=holdfast&host=/tmp/pg"),
        (f"ana:{SECRET}@%2Ftmp%2Fpg/runs", "ana@/runs?schema=holdfast&host=/tmp/pg"),
        ("/runs?host=/tmp/pg,h2&port=5432,5433", "/runs?schema=holdfast&host=/tmp/pg,h2&port=5432,5433"),
        (f"ana:{SECRET}@/runs?hostaddr=10.0.0.1", "ana@/runs?schema=holdfast&hostaddr=10.0.0.1"),
    ],
)
def test_a_url_of_several_hosts_or_an_address_is_shown_so_that_it_means_the_same(place: str, shown: str) -> None:
    settings = read_url(f"postgresql://{place}")
    assert settings.shown == f"postgresql://{shown}"
    again = read_url(settings.shown)
    assert again.shown == settings.shown
    kept = ("host", "user", "dbname", "target_session_attrs", "hostaddr")
    assert {name: again.conninfo.get(name) for name in kept} == {name: settings.conninfo.get(name) for name in kept}


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ana:1@{SECRET}@host/d",
        f"postgresql://ana:1/{SECRET}@host/d",
        f"postgresql://ana:1?{SECRET}@host/d",
        f"postgresql://ana:{SECRET}@host:port/d",
        f"postgresql://ana:{SECRET}@[host/d",
        f"postgresql://ana:{SECRET}@host/d?no-such-option=1",
        f"postgresql://ana:{SECRET}@host/d?schema=",
        f"postgresql://ana:{SECRET}@host/d?schema=pg_mine",
        f"postgresql://ana:{SECRET}@host/d?schema={'x' * 64}",
        f"postgresql://ana:{SECRET}@host/d?schema=a%00b",
        f"postgresql://ana:{SECRET}@host/d?pool_size=none",
        f"postgresql://ana:{SECRET}@host/d?durability=none",
        f"postgresql://ana:{SECRET}@host/d?schema",
    ],
)
def test_a_wrong_url_is_refused_without_repeating_its_secrets(url: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        holdfast.open(url)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def _lock_in(user: str) -> None:
    """Have the shared server ask this user for a password."""
    server = shared(newest())
    rules = server.data / "pg_hba.conf"
    rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with server.connect() as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN PASSWORD '{SECRET}'")
        connection.execute("SELECT pg_reload_conf()")


def test_what_is_wrong_with_a_connection_is_said_without_the_password() -> None:
    server = shared(newest())
    _lock_in("guarded")
    place = f"127.0.0.1:{server.port}"
    wrong = [
        (f"postgresql://guarded:{SECRET}x@{place}/postgres", "password"),
        (f"postgresql://guarded:{SECRET}@{place}/missing", "missing"),
        (f"postgresql://tester:{SECRET}@127.0.0.1:{free_port()}/postgres", "reached"),
        (f"postgresql://nobody:{SECRET}@{place}/postgres", "nobody"),
        (f"postgresql://guarded:{SECRET}@{place}/postgres?schema=not_theirs&durability=relaxed", "grant"),
    ]
    for url, reason in wrong:
        with pytest.raises(StorageFailed, match=reason) as caught:
            holdfast.open(url)
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in str(error)
            error = error.__cause__


def test_a_role_that_may_create_nothing_uses_a_schema_made_from_the_printed_text() -> None:
    server, schema = shared(newest()), new_schema()
    _lock_in("modest")
    with server.connect() as connection:
        connection.execute(sql_text(schema).encode())
        connection.execute(f"GRANT USAGE ON SCHEMA {schema} TO modest")
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO modest")
        connection.execute(f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO modest")
    url = f"postgresql://modest:{SECRET}@127.0.0.1:{server.port}/postgres?schema={schema}&durability=relaxed"
    with holdfast.open(url) as store:
        assert SECRET not in store.url
        assert SECRET not in repr(store)
        store.save("run", {"n": 1})
        store.mark_done("run", "key")
        assert store.load("run").state == {"n": 1}  # type: ignore[union-attr]


# --- durability ------------------------------------------------------------------------------------------------------


def test_a_server_that_does_not_sync_is_refused_unless_that_is_asked_for() -> None:
    server = shared(newest())
    with pytest.raises(StorageFailed, match="durably"):
        holdfast.open(server.url(schema=new_schema()))
    with server.connect() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    holdfast.open(new_url()).close()


# --- the schema ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    ['we"ird', "a'; DROP SCHEMA public; --", "ünï çödé", "per%cent%s", "Upper Case", "back\\slash", "x" * 63, "?"],
)
def test_a_schema_may_have_any_name(schema: str) -> None:
    url = new_url(schema=schema)
    for _ in range(2):
        with holdfast.open(url) as store:
            for n in range(8):
                store.save("run", {"n": n}, metadata={"a": n})
            claim = store.claim_ready("w")[0]
            claim.save({"messages": ["x" * 3000] * 3})
            claim.release()
            assert store.runs(metadata={"a": 7})[0].run_id == "run"
            assert store.verify().problems == []
            assert store.delete("run")
            assert store.stats().file_bytes > 0


def test_two_schemas_are_two_stores() -> None:
    with holdfast.open(new_url()) as one, holdfast.open(new_url()) as other:
        one.save("run", 1)
        assert other.load("run") is None
        assert other.runs() == []


def test_many_processes_create_a_schema_at_once() -> None:
    url = new_url()
    code = "import sys, holdfast; holdfast.open(sys.argv[1]).save(sys.argv[2], 1)"
    processes = [run_python(code, url, f"run {i}") for i in range(6)]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 6, said
    with holdfast.open(url) as store:
        assert len(store.runs()) == 6


def test_a_newer_schema_is_refused() -> None:
    schema = new_schema()
    url = new_url(schema=schema)
    holdfast.open(url).close()
    with shared(newest()).connect() as connection:
        connection.execute(f"INSERT INTO {schema}.schema_version VALUES ({VERSION + 1})")
    with pytest.raises(holdfast.errors.UnsupportedFormat, match=f"version {VERSION + 1}"):
        holdfast.open(url)


def test_a_schema_of_another_program_is_not_touched() -> None:
    schema = new_schema()
    with shared(newest()).connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.runs (x int)")
        with pytest.raises(StorageFailed, match="choose another"):
            holdfast.open(new_url(schema=schema))
        found = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace", (schema,))
        assert found.fetchall() == [("runs",)]


def test_what_is_compressed_already_is_not_compressed_again() -> None:
    schema = new_schema()
    with holdfast.open(new_url(schema=schema)), shared(newest()).connect() as connection:
        found = connection.execute(
            "SELECT attrelid::regclass::text, attstorage FROM pg_attribute WHERE attname IN ('body', 'root') "
            "AND attrelid::regclass::text LIKE %s",
            (f"{schema}.%",),
        ).fetchall()
        assert len(found) == 10
        assert {storage for _, storage in found} == {"e"}


def test_metadata_keys_may_be_long_or_strange() -> None:
    metadata = {"k" * 512: 1, "nul\x00": 2, "": 3, "é": "x" * 5000}
    with holdfast.open(new_url()) as store:
        store.save("run", 1, metadata=metadata)
        store.save("other", 1)
        for key, value in metadata.items():
            assert [run.run_id for run in store.runs(metadata={key: value})] == ["run"]
        assert store.delete("run")
        assert store.runs(metadata=metadata) == []
