"""One set of storage options for both clients of an object store: deltalog and Spark's S3A.

The options have the same names as those of ``DeltaTable.open(url, **options)``. Spark gets these options as Hadoop
settings that apply only to a single scan and only to the table's buckets. Without options, the session's S3A settings
also apply to deltalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

import deltalog

_S3 = re.compile(r"s3a?://([^/]+)/?(.*)", re.DOTALL)
# The S3A settings (names after "fs.s3a.") for which deltalog has an option.
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
# Options that are needed only for commits, not to access data files.
_OF_COMMITS = ("commit", "dynamodb_endpoint_url")
# Options that would make deltalog access the store through another library.
_OTHER_CLIENTS = ("filesystem", "driver")


def bucket_of(url: str) -> str | None:
    """The bucket of an S3 URL; None for other locations."""
    found = _S3.match(url)
    return found[1] if found else None


@dataclass(frozen=True)
class Storage:
    """How to access the files of a table. The repr of this class omits options and settings, which can contain
    secrets."""

    #: Whether the files are on S3.
    is_remote: bool = False
    #: The options for deltalog.
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Hadoop settings for Spark's scans.
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, spark: SparkSession, snapshot: deltalog.Snapshot) -> Storage:
        """The storage of a snapshot's table, however the table was opened. Cost: 1 Spark command for a table on S3."""
        files = snapshot.reader.files
        buckets = [bucket for url in (snapshot.url, *files.allowed_paths) if (bucket := bucket_of(url)) is not None]
        if not buckets:
            return cls()
        options = _options_of(files.store)
        plain = {name: value for name, value in options.items() if name not in _OF_COMMITS}
        if plain == of_session(spark, snapshot.url):
            return cls(True, plain)  # the session has these settings already
        return cls(True, plain, s3a_settings(_with_keys(plain), buckets))

    @property
    def source(self) -> Callable[[str], Any]:
        """A function that returns, for an absolute path or URL, the source that pyarrow opens. The function can be
        pickled and sent to workers, which need deltalog only for tables on S3. The function raises ObjectNotFoundError
        and StoreError."""
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
    """The options with which a store was opened."""
    while store.reopen is None and hasattr(store, "inner"):
        store = store.inner
    return {} if store.reopen is None else dict(store.reopen.keywords)


def _with_keys(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with the keys that a source of credentials has now: S3A cannot ask it. A scan must end before they
    expire; deltalog itself, also in tasks, renews them. Raises StoreError. Cost: none, or 1 request."""
    source = options.get("credentials")
    if source is None:
        return options
    try:
        keys = source.current()
    except Exception as error:
        raise deltalog.StoreError(f"There are no credentials for the files of the table: {error}") from error
    others = {name: value for name, value in options.items() if name != "credentials"}
    return {**others, "key": keys.access_key, "secret": keys.secret_key, "token": keys.token}


def s3a_settings(options: Mapping[str, Any], buckets: Iterable[str]) -> dict[str, str]:
    """The storage options, converted to S3A settings for these buckets. Options without a counterpart are left out.
    Pure."""
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
        found[_REGION] = region or _DEFAULT_REGION  # S3A derives a region from AWS endpoints only
    elif region:
        found[_REGION] = region
    if s3.get("addressing_style"):
        found[_PATH_STYLE] = _flag(s3["addressing_style"] == "path")
    if options.get("requester_pays"):
        found[_PAYER] = "true"
    return {f"fs.s3a.bucket.{bucket}.{name}": value for bucket in buckets for name, value in found.items()}


def deltalog_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """S3A settings (names after ``fs.s3a.``) as options of deltalog. Pure."""
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
    """The session's S3A settings (``fs.s3a.…`` and ``spark.hadoop.fs.s3a.…``; per-bucket settings take precedence)
    converted to storage options for a table. Cost: 1 command, and 1 query for every setting that is set."""
    return options_in(session_settings(spark, bucket_of(url)), url)


def session_settings(spark: SparkSession, bucket: str | None = None) -> dict[str, str]:
    """The session's S3A settings that ``_KNOWN`` contains, keyed by full name: all of them or, with ``bucket``, only
    the settings that apply to this bucket. Cost: 1 command, and 1 query for every setting that is set."""
    found: dict[str, str] = {}
    # Only the names are used, because the SET command redacts values that look like secrets.
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
    """The options for a table from the result of ``session_settings``. Pure."""
    of_bucket = f"fs.s3a.bucket.{bucket_of(url)}."
    settings: dict[str, str] = {}
    for prefix in ("spark.hadoop.fs.s3a.", "fs.s3a.", f"spark.hadoop.{of_bucket}", of_bucket):
        settings.update({name: session[prefix + name] for name in _KNOWN if prefix + name in session})
    return deltalog_options(settings)


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a caller's options. Raises CallError for an option that Spark cannot follow."""
    for name in _OTHER_CLIENTS:
        if name in options:
            raise deltalog.CallError(
                f"The storage option {name} selects a client that Spark does not have. Use the options of s3fs."
            )
    return dict(options)


def _flag(value: object) -> str:
    return str(bool(value)).lower()
