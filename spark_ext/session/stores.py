"""One set of storage options for both clients of an object store: deltalog's, and Spark's S3A file system.

Options have the names that ``DeltaTable.open(url, **options)`` takes. Spark gets them as Hadoop settings of one scan,
for the buckets of the table only. Where none are given, the session's own S3A settings apply to deltalog too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

import deltalog

_S3 = re.compile(r"s3a?://([^/]+)/?(.*)", re.DOTALL)
# Settings of S3A by their names after "fs.s3a." that have a counterpart here.
_KEY, _SECRET, _TOKEN = "access.key", "secret.key", "session.token"
_ENDPOINT, _REGION, _SSL = "endpoint", "endpoint.region", "connection.ssl.enabled"
_PATH_STYLE, _PROVIDER, _PAYER = "path.style.access", "aws.credentials.provider", "requester.pays.enabled"
_KNOWN = (_KEY, _SECRET, _TOKEN, _ENDPOINT, _REGION, _SSL, _PATH_STYLE, _PROVIDER, _PAYER)
_SETTING = re.compile(
    rf"(?:spark\.hadoop\.)?fs\.s3a\.(?:bucket\.(.+)\.)?(?:{'|'.join(re.escape(name) for name in _KNOWN)})"
)
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_PROFILE = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"
_DEFAULT_REGION = "us-east-1"
# Options that decide who commits: files of data need none of them.
_OF_COMMITS = ("commit", "dynamodb_endpoint_url")
# Options by which the driver reaches the store through another library.
_OTHER_CLIENTS = ("filesystem", "driver")


def bucket_of(url: str) -> str | None:
    """The bucket of an address on S3; None for other places."""
    found = _S3.match(url)
    return found[1] if found else None


@dataclass(frozen=True)
class Storage:
    """How the files of a table are reached. ``is_remote``: they are on S3. ``options``: of deltalog. ``settings``: of
    Spark's scans. Its text shows neither, since both can hold secrets."""

    is_remote: bool = False
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spark: SparkSession, snapshot: deltalog.Snapshot) -> Storage:
        """Of the table of a snapshot, however it was opened. Cost: 1 command of Spark for a table on S3."""
        files = snapshot.reader.files
        buckets = [bucket for url in (snapshot.url, *files.allowed_paths) if (bucket := bucket_of(url)) is not None]
        if not buckets:
            return cls()
        options = _options_of(files.store)
        plain = {name: value for name, value in options.items() if name not in _OF_COMMITS}
        if plain == of_session(spark, snapshot.url):
            return cls(True, plain)  # Spark has these already
        return cls(True, plain, s3a_settings(plain, buckets))

    @property
    def source(self) -> Callable[[str], Any]:
        """From the absolute path or URL of a file to what pyarrow reads. It can be sent to workers, which need deltalog
        for tables on S3 only. It raises ObjectNotFoundError, StoreError."""
        if not self.is_remote:
            return str
        open_store, options, opened = deltalog.open_store, dict(self.options), dict[str, Any]()

        def source(url: str) -> Any:
            scheme, _, rest = url.partition("://")
            bucket, _, key = rest.partition("/")
            if bucket not in opened:
                opened[bucket] = open_store(f"{scheme}://{bucket}", **options)
            return opened[bucket].open_input(key)

        return source


def _options_of(store: Any) -> Mapping[str, Any]:
    """The options that a store was opened with."""
    while store.reopen is None and hasattr(store, "inner"):
        store = store.inner
    return {} if store.reopen is None else dict(store.reopen.keywords)


def s3a_settings(options: Mapping[str, Any], buckets: Iterable[str]) -> dict[str, str]:
    """Options as settings of S3A, for each of the buckets. Those that only deltalog knows are left out. Pure."""
    client = options.get("client_kwargs") or {}
    s3 = (options.get("config_kwargs") or {}).get("s3") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    region = client.get("region_name")
    found: dict[str, str] = {}
    if options.get("anon"):
        found[_PROVIDER] = _ANONYMOUS
    elif options.get("key"):
        found.update({_KEY: options["key"], _SECRET: options.get("secret") or "", _PROVIDER: _SIMPLE})
        if options.get("token"):
            found.update({_TOKEN: options["token"], _PROVIDER: _TEMPORARY})
    elif options.get("profile"):
        found.update({_PROVIDER: _PROFILE, "auth.profile.name": options["profile"]})
    if endpoint:
        is_secure = not endpoint.startswith("http://")
        found.update({_ENDPOINT: endpoint, _SSL: _flag(is_secure), _PATH_STYLE: "true"})
        found[_REGION] = region or _DEFAULT_REGION  # S3A takes one from the endpoint of AWS only
    elif region:
        found[_REGION] = region
    if s3.get("addressing_style"):
        found[_PATH_STYLE] = _flag(s3["addressing_style"] == "path")
    if options.get("requester_pays"):
        found[_PAYER] = "true"
    return {f"fs.s3a.bucket.{bucket}.{name}": value for bucket in buckets for name, value in found.items()}


def deltalog_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of S3A, by their names after ``fs.s3a.``, as options of deltalog. Pure."""
    options: dict[str, Any] = {}
    providers = settings.get(_PROVIDER, "")
    if "Anonymous" in providers:
        options["anon"] = True
    elif settings.get(_KEY):
        options.update(key=settings[_KEY], secret=settings.get(_SECRET, ""))
        if settings.get(_TOKEN):
            options["token"] = settings[_TOKEN]
    endpoint = settings.get(_ENDPOINT)
    if endpoint:
        scheme = "http" if settings.get(_SSL, "true").lower() == "false" else "https"
        options["endpoint_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    if settings.get(_REGION):
        options["client_kwargs"] = {"region_name": settings[_REGION]}
    if settings.get(_PATH_STYLE, "").lower() == "true":
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if settings.get(_PAYER, "").lower() == "true":
        options["requester_pays"] = True
    return options


def of_session(spark: SparkSession, url: str) -> dict[str, Any]:
    """The session's settings of S3A (``fs.s3a.…`` and ``spark.hadoop.fs.s3a.…``, those of the bucket first) as options
    for a table there. Cost: 1 command, and 1 query for each setting that is set."""
    return options_in(session_settings(spark, bucket_of(url)), url)


def session_settings(spark: SparkSession, bucket: str | None = None) -> dict[str, str]:
    """The session's settings of S3A that have a counterpart here, by their whole names: those of all buckets, or of
    one and those for all. Cost: 1 command, and 1 query for each setting that is set."""
    found: dict[str, str] = {}
    # Names only: this command redacts values that look like secrets.
    for row in spark.sql("SET").collect():
        name = str(row[0])
        of_bucket = _SETTING.fullmatch(name)
        if of_bucket is None or (bucket is not None and of_bucket[1] not in (None, bucket)):
            continue
        value = spark.conf.get(name, None)
        if value is not None:
            found[name] = value
    return found


def options_in(session: Mapping[str, str], url: str) -> dict[str, Any]:
    """Options for a table from what ``session_settings`` returned. Pure."""
    of_bucket = f"fs.s3a.bucket.{bucket_of(url)}."
    settings: dict[str, str] = {}
    for prefix in ("spark.hadoop.fs.s3a.", "fs.s3a.", f"spark.hadoop.{of_bucket}", of_bucket):
        settings.update({name: session[prefix + name] for name in _KNOWN if prefix + name in session})
    return deltalog_options(settings)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a caller. Raises CallError for one by which only deltalog would reach the store."""
    for name in _OTHER_CLIENTS:
        if name in options:
            raise deltalog.CallError(
                f"The storage option {name} selects a client that Spark does not have. Give the options of s3fs."
            )
    return dict(options)


def _flag(value: object) -> str:
    return str(bool(value)).lower()
