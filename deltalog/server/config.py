"""The configuration of a server: one TOML file, whose sections are the settings of the server's parts.

The file contains no secrets. It names the files or environment variables that contain them, so that it can be shown,
kept in version control and mounted with read access for everybody. Secrets cannot be given on the command line either,
because every user of a machine can list the arguments of its processes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import logging
import os
import re
import stat
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from deltalog.catalog.postgresql_schema import PostgresSettings
from deltalog.errors import CallError
from deltalog.server.access.authentication import AuthenticationSettings
from deltalog.server.access.certificates import CertificateSettings
from deltalog.server.access.oidc import OidcSettings
from deltalog.server.access.sigv4 import SigV4Settings
from deltalog.server.access.token_lookup import TokenSettings
from deltalog.server.limits import Limits
from deltalog.server.observe.settings import AuditSettings, MetricsSettings, TraceSettings
from deltalog.server.reload import FileStates, states_of
from deltalog.server.secret_files import secret_in
from deltalog.server.settings import Settings, vendor_of
from deltalog.server.tls import Tls
from deltalog.server.ui.settings import UiSettings
from deltalog.transactions.unity.settings import UnitySettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

log = logging.getLogger(__name__)

TOKEN_VARIABLE = "DELTALOG_SERVER_TOKEN"
_MOST_BYTES = 64 << 10
# The time for parsing a key grows at least quadratically with the number of its dots.
_MOST_DOTS = 500
_MOST_NUMBER = 1e12
# About 31 years. Python's waits for threads accept 292 years at most.
_MOST_SECONDS = 1e9
_DEEPEST = 16
# The smallest values of numbers; with less, the server would serve nobody, or not limit what it should. Other numbers
# must not be negative.
_LEAST = {
    ("listen", "port"): 0,
    ("limits", "body_bytes"): 1024,
    ("limits", "header_bytes"): 1024,
    ("limits", "header_seconds"): 0.1,
    ("limits", "body_seconds"): 0.1,
    ("limits", "request_seconds"): 0.1,
    ("limits", "response_seconds"): 0.1,
    ("limits", "threads"): 1,
    ("limits", "requests"): 1,
    ("limits", "connections"): 16,
    ("limits", "quotas.remembered"): 1,
    ("tokens", "guesses"): 1,
    ("tokens", "guess_seconds"): 0.1,
    ("tokens", "lookup_seconds"): 0.1,
    ("oidc", "fetch_seconds"): 0.1,
    ("oidc", "fetch_bytes"): 1024,
    ("oidc", "max_age_seconds"): 1,
    ("sigv4", "window_seconds"): 1,
    ("unity", "most_unpublished"): 1,
    ("catalog", "idle_timeout_seconds"): 0.001,
    ("catalog", "postgresql.connections"): 1,
    ("catalog", "postgresql.connect_seconds"): 1,
    ("catalog", "postgresql.statement_seconds"): 0.1,
    ("catalog", "postgresql.answer_seconds"): 0.1,
    ("catalog", "postgresql.idle_seconds"): 0.1,
    ("process", "end_seconds"): 1,
    ("ui", "rows"): 1,
    ("audit", "queue_lines"): 1,
    ("audit", "write_seconds"): 0.01,
}
_MOST = {("listen", "port"): 65535, ("metrics", "port"): 65535, ("ui", "rows"): 10_000}
# Storage options whose values are secret. The names of files and environment variables are not secret.
_SECRET = re.compile(
    r"(?:.*_)?(?:key|secret|token|password|passwd|sas|credential|connection_string|secret_access_key|access_key"
    r"|access_key_id|account_key|sas_token|client_secret|session_token)",
    re.IGNORECASE,
)
_CATALOG_NAME = re.compile(r"[^\x00-\x20./\x7f]{1,255}")
# Arguments beside the storage options when a catalog is opened.
_NO_OPTIONS = frozenset({"url", "create", "postgresql", "idle_timeout", "most_ahead", "environment"})
_OUTPUT_FILES = frozenset({"access_file"})


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """``host``: the address to listen on; any address other than loopback needs TLS, or a way for callers to prove who
    they are. ``port``: the port; 0 selects a free one."""

    host: str = "127.0.0.1"
    port: int = 8750


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """``certificate_file``: a PEM file with the server's certificate, followed by those of intermediate authorities;
    empty: the server has no TLS. ``key_file``: a PEM file with the private key of the certificate. ``client_ca_file``:
    a PEM file with the certificate authorities, one of which must have signed the certificate of a caller; empty:
    callers need no certificate."""

    certificate_file: str = ""
    key_file: str = ""
    client_ca_file: str = ""


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """``url``: where the catalog is: the path of a SQLite file, ``dynamodb:<table>`` or
    ``postgresql://user@host/database``; the argument of the command line overrides it. ``idle_timeout_seconds``: a
    transaction is aborted after this time without activity. ``most_ahead_seconds``: commits whose timestamp is ahead of
    this machine's clock by more than this are refused. ``postgresql``: the limits of a catalog in PostgreSQL."""

    url: str = ""
    idle_timeout_seconds: float = 1800
    most_ahead_seconds: float = 3600
    postgresql: PostgresSettings = field(default_factory=PostgresSettings)


@dataclass(frozen=True, slots=True)
class CredentialsSettings:
    """``rules_file``: a JSON file of rules that say which credentials clients get for the locations of tables; empty:
    clients get none."""

    rules_file: str = ""


@dataclass(frozen=True, slots=True)
class AllTokenSettings(TokenSettings):
    """``token_file``: a file with the shared token, of at least 16 characters. Every caller who sends it is an
    administrator. ``token_env``: the environment variable with the shared token, which is used if there is no
    ``token_file``. Only a token in a file can be replaced without a restart, because the environment of a process does
    not change."""

    token_file: str = ""
    token_env: str = TOKEN_VARIABLE


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """``options_file``: a JSON file with storage options; its member ``by_location`` maps prefixes of locations to
    options. ``options``: storage options, which are added to those of the file. The value of a secret option must be a
    reference: ``{file = "/run/secrets/key"}`` or ``{env = "NAME"}``."""

    options_file: str = ""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """``every_seconds``: the interval between runs of recovery, which publishes ratified commits and cleans up after
    processes that died; 0: the server does not run it."""

    every_seconds: float = 60


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """``drain_seconds``: after SIGTERM, the server reports for this time that it is not ready, and still serves calls,
    so that load balancers can notice; by default 5, and 0 on loopback. ``end_seconds``: after ``drain_seconds``, the
    server takes no new connections, and running calls get this time to end; those that have not ended are cut off.
    ``drain_seconds`` and ``end_seconds`` together must be less than the time after which an orchestrator kills the
    process, by default 30 s in Kubernetes. ``watch_seconds``: the interval at which files with secrets, certificates
    and rules are checked for changes, which then take effect without a restart; 0: these files are read again only on
    SIGHUP. ``log_level``: the lowest level of the events that are logged on standard error."""

    drain_seconds: float | None = None
    end_seconds: float = 20
    watch_seconds: float = 10
    log_level: Literal["error", "warning", "info"] = "info"


@dataclass(frozen=True, slots=True)
class Config:
    """The sections of a configuration file. A section whose default is None is in effect if the file has it, even if it
    is empty.
    """

    listen: ListenSettings = field(default_factory=ListenSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    catalog: CatalogSettings = field(default_factory=CatalogSettings)
    unity: UnitySettings = field(default_factory=UnitySettings)
    credentials: CredentialsSettings = field(default_factory=CredentialsSettings)
    tokens: AllTokenSettings = field(default_factory=AllTokenSettings)
    certificates: CertificateSettings | None = None
    oidc: OidcSettings | None = None
    sigv4: SigV4Settings | None = None
    limits: Limits = field(default_factory=Limits)
    storage: StorageSettings = field(default_factory=StorageSettings)
    recovery: RecoverySettings = field(default_factory=RecoverySettings)
    process: ProcessSettings = field(default_factory=ProcessSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    traces: TraceSettings = field(default_factory=TraceSettings)
    ui: UiSettings = field(default_factory=UiSettings)


T = TypeVar("T")
Given = Mapping[str, Any]
"""Sections with their keys and values, as in a TOML file."""


# ------------------------------------------------------------------------------------------------------ reading


def parse(file: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises CallError, whose message has no text of the file."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CallError(f"{file} cannot be read: {error.strerror}.") from None
    if len(data) > _MOST_BYTES:
        raise CallError(f"{file} is larger than {_MOST_BYTES:,} bytes, the maximum size of a configuration.")
    if any(line.count(b".") > _MOST_DOTS for line in data.splitlines()):
        raise CallError(f"{file} has a line with more than {_MOST_DOTS} dots.")
    try:
        return typing.cast(dict[str, Any], tomllib.loads(data.decode()))
    except tomllib.TOMLDecodeError as error:
        raise CallError(f"{file} is not valid TOML: {_place_of(str(error))}.") from None
    except UnicodeDecodeError as error:
        raise CallError(f"{file} is not valid TOML: byte {error.start} is not UTF-8.") from None
    except (ValueError, RecursionError):  # an integer with thousands of digits, or brackets that are nested too deep
        raise CallError(f"{file} is not valid TOML: a value is too long or nested too deep.") from None


def set_of(text: str) -> dict[str, Any]:
    """The section and key that ``SECTION.KEY=VALUE`` sets. The value is parsed as TOML; if it is not valid TOML, it is
    a string. Raises CallError.
    """
    name, equals, value = text.partition("=")
    keys = [part.strip() for part in name.split(".")]
    if not equals or not 2 <= len(keys) <= _DEEPEST or not all(keys):
        raise CallError("A setting is given as SECTION.KEY=VALUE, such as limits.threads=32.")
    if keys[0] == "storage" and keys[1] != "options_file":
        raise CallError(
            "Storage options cannot be set on the command line, because they may be secret and every user "
            "of the machine can list the arguments of a process. Set them in [storage] of the "
            "configuration file, or in the file that storage.options_file names."
        )
    found: Any = value
    if value.count(".") <= _MOST_DOTS:
        with contextlib.suppress(ValueError, RecursionError):
            read = tomllib.loads(f"value = {value}")
            found = read["value"] if len(read) == 1 else value
    for key in reversed(keys):
        found = {key: found}
    return typing.cast(dict[str, Any], found)


def merged(below: Given, above: Given) -> dict[str, Any]:
    """The keys of both, with the values of ``above`` where both have a key."""
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        found[key] = merged(typing.cast(Given, under), value) if both else value
    return found


def read(given: Given, source: str) -> Config:
    """The configuration with these sections. ``source``: where they come from, for error messages. Raises CallError,
    which names every wrong key.
    """
    problems = list(_unknown_keys(given))
    has_unknown = bool(problems)
    sections: dict[str, Any] = {}
    for name, kind in _fields(Config).items():
        value = given.get(name)
        if not isinstance(value, Mapping) or has_unknown:
            continue
        try:
            sections[name] = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            problems.append(_in_section(name, str(error)))
        except RecursionError:
            problems.append(f"[{name}]: a value is nested too deep")
        else:
            problems += _wrong_numbers(name, sections[name])
    if not problems:
        problems += _wrong_references(given.get("storage", {}).get("options", {}), "[storage] options")
    if problems:
        raise CallError("\n".join(f"{source}: {each}." for each in problems))
    return Config(**sections)


def _fields(kind: type) -> dict[str, Any]:
    """The names and types of the fields of a dataclass."""
    return typing.get_type_hints(kind, include_extras=True)


def _dataclass_in(kind: Any) -> type | None:
    """The dataclass in a type: the type itself, an alternative of a union, or the type of the items of a collection."""
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return kind
    parts = typing.get_args(kind)
    if typing.get_origin(kind) in (tuple, list, typing.Union, types.UnionType, typing.Annotated):
        return next((found for each in parts if (found := _dataclass_in(each))), None)
    return None


def _unknown_keys(given: Given) -> Iterator[str]:
    known = _fields(Config)
    for name, value in given.items():
        if name not in known:
            yield f"there is no section [{_shown(name)}]{_hint(name, known)}"
        elif not isinstance(value, Mapping):
            yield f"{name} must be a section, [{name}]"
        else:
            yield from _unknown_in(value, known[name], f"[{name}]", "")


def _unknown_in(value: Any, kind: Any, section: str, above: str) -> Iterator[str]:
    cls = _dataclass_in(kind)
    if cls is None:
        return
    if isinstance(value, (list, tuple)):
        for number, each in enumerate(value):
            yield from _unknown_in(each, cls, section, f"{above.rstrip('.')}[{number}].")
        return
    if not isinstance(value, Mapping):
        return
    known = _fields(cls)
    for key, each in value.items():
        if key not in known:
            yield f"{section} has no key {above}{_shown(key)}{_hint(key, known)}"
        else:
            yield from _unknown_in(each, known[key], section, f"{above}{key}.")


def _hint(name: str, known: Mapping[str, Any]) -> str:
    found = difflib.get_close_matches(name[:100], known, 1, 0.6)
    named = [each for each in (f"{name}_file", f"{name}_env") if each in known]
    if named:
        return f": secrets do not belong in this file; use {named[0]}, which says where the secret is"
    return f"; did you mean {found[0]}?" if found else f"; known are {', '.join(sorted(known))}"


def _shown(name: str) -> str:
    return name if len(name) <= 100 and name.isprintable() else f"{name[:100]!r}"


def _in_section(section: str, message: str) -> str:
    """msgspec's message in terms of the file: ``Expected `int`, got `str` - at `$.threads` ``."""
    what, _, place = message.partition(" - at ")
    key = place.strip("`").removeprefix("$").removeprefix(".")
    what = re.sub(r"`([a-z |]+)`", lambda found: " or ".join(map(_in_toml, found[1].split(" | "))), what)
    shown = key if key.isprintable() and len(key) <= 200 else ascii(key[:200])
    return f"[{section}]{shown and ' '}{shown}: {what[:1].lower()}{what[1:]}"


def _in_toml(kind: str) -> str:
    words = {"str": "text", "int": "an integer", "float": "a number", "bool": "true or false"}
    return {**words, "array": "a list", "object": "a table", "null": "nothing"}.get(kind, kind)


def _wrong_numbers(section: str, settings: Any, above: str = "") -> Iterator[str]:
    for each in dataclasses.fields(settings):
        value = getattr(settings, each.name)
        if dataclasses.is_dataclass(value):
            yield from _wrong_numbers(section, value, f"{above}{each.name}.")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        key = section, above + each.name
        of_kind = _MOST_SECONDS if each.name.endswith("_seconds") else _MOST_NUMBER
        least, most = _LEAST.get(key, 0), _MOST.get(key, of_kind)
        if not least <= value <= most:
            yield f"[{section}] {above}{each.name}: must be {least:,} to {most:,.0f}"


def _wrong_references(options: Mapping[str, Any], place: str) -> Iterator[str]:
    for name, value in options.items():
        shown = f"{place}.{_shown(name)}"
        if isinstance(value, Mapping) and not _is_reference(value):
            yield from _wrong_references(value, shown)
        elif isinstance(value, str) and value and _SECRET.fullmatch(name):
            yield f'{shown}: secrets do not belong in this file: give {{file = "…"}} or {{env = "…"}}'


def _place_of(message: str) -> str:
    """The place in an error message of tomllib, without text of the file: it may be a misplaced secret."""
    found = re.search(r"\(at ([^()]*)\)\s*$", message)
    what = message[: found.start()] if found else message
    what = re.sub(r"(['\"]).*\1", "a name or value", what, flags=re.S).strip()
    return f"{what} (at {found[1]})" if found else what


# ------------------------------------------------------------------------------------------- secrets by reference


def secret_of(file: str, variable: str) -> str | None:
    """The secret in a file, or else in an environment variable; None if neither is given. Raises CallError."""
    if file:
        return secret_in(Path(file))
    return os.environ.get(variable) or None if variable else None


def storage_options_of(settings: StorageSettings, read_file: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The storage options, with their secrets. ``read_file``: reads a file of storage options. Raises CallError."""
    of_file = read_file(Path(settings.options_file)) if settings.options_file else {}
    found = merged(of_file, _resolved(settings.options, "[storage] options"))
    if wrong := sorted(_NO_OPTIONS & found.keys()):
        raise CallError(f"[storage] options: {', '.join(wrong)}: there are no storage options of these names.")
    return found


def _resolved(options: Mapping[str, Any], place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        shown = f"{place}.{_shown(name)}"
        if not isinstance(value, Mapping):
            found[name] = value
        elif not _is_reference(value):
            found[name] = _resolved(value, shown)
        elif "file" in value:
            found[name] = secret_in(Path(value["file"]))
        elif (secret := os.environ.get(value["env"])) is not None:
            found[name] = secret
        else:
            raise CallError(f"{shown}: the environment variable {value['env']} is not set.")
    return found


def _is_reference(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in ("file", "env") and isinstance(next(iter(value.values())), str)


# ------------------------------------------------------------------------------------------- all settings


def settings_of(config: Config) -> Settings:
    """The settings of a server, with the values of the secrets to which the configuration refers. Raises CallError."""
    rules = config.credentials.rules_file
    vendor = vendor_of(Path(rules) if rules else None)
    readable = (*config.unity.readable, *vendor.prefixes)
    if _CATALOG_NAME.fullmatch(config.unity.catalog) is None:
        raise CallError(
            "[unity] catalog: clients could not name this catalog: its name must have 1 to 255 printable characters "
            "without blanks, dots and slashes."
        )
    process = config.process
    return Settings(
        host=config.listen.host,
        port=config.listen.port,
        token=secret_of(config.tokens.token_file, config.tokens.token_env),
        tls=_tls_of(config.tls),
        limits=config.limits,
        recover_seconds=config.recovery.every_seconds,
        unity=dataclasses.replace(config.unity, readable=readable, warehouse=config.unity.warehouse or None),
        vendor=vendor,
        drain_seconds=process.drain_seconds,
        end_seconds=process.end_seconds,
        watch_seconds=process.watch_seconds,
        log_level=process.log_level,
        authentication=AuthenticationSettings(
            _only(TokenSettings, config.tokens), config.certificates, config.oidc, config.sigv4
        ),
        audit=config.audit,
        metrics=config.metrics,
        traces=config.traces,
        ui=config.ui,
    )


def _only(kind: type[T], settings: T) -> T:
    """The settings as an instance of their base class ``kind``, with its fields only."""
    return kind(**{each.name: getattr(settings, each.name) for each in dataclasses.fields(typing.cast(Any, kind))})


def _tls_of(tls: TlsSettings) -> Tls | None:
    if not (tls.certificate_file or tls.key_file or tls.client_ca_file):
        return None
    if not (tls.certificate_file and tls.key_file):
        raise CallError("[tls] needs both certificate_file and key_file.")
    return Tls(Path(tls.certificate_file), Path(tls.key_file), Path(tls.client_ca_file) if tls.client_ca_file else None)


def files_of(settings: Any) -> dict[str, str]:
    """The files that a configuration names for the server to read, by section and key."""
    found: dict[str, str] = {}
    for each in dataclasses.fields(settings):
        value = getattr(settings, each.name)
        if dataclasses.is_dataclass(value):
            found |= {f"[{each.name}] {key}": file for key, file in files_of(value).items()}
        elif each.name.endswith("_file") and each.name not in _OUTPUT_FILES and value:
            found[each.name] = value
    if isinstance(settings, StorageSettings):
        found |= dict(_referred(settings.options, "options"))
    return found


def _referred(options: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, Mapping) and _is_reference(value):
            if "file" in value:
                yield f"{place}.{name}", value["file"]
        elif isinstance(value, Mapping):
            yield from _referred(value, f"{place}.{name}")


def outputs_of(config: Config) -> dict[str, str]:
    """The files that a configuration names for the server to write, by section and key."""
    found = {"[audit] file": config.audit.file, "[audit] access_file": config.audit.access_file}
    return {place: file for place, file in found.items() if file not in ("", "-")}


def exposed(files: Mapping[str, str]) -> list[str]:
    """Warnings about files with secrets that every user of the machine can read. ``files``: as from ``files_of``."""
    found = []
    for place, file in files.items():
        if place in ("[tls] certificate_file", "[tls] client_ca_file"):
            continue
        try:
            mode = os.stat(file).st_mode
        except OSError:
            continue
        if os.name == "posix" and mode & stat.S_IROTH:
            found.append(
                f"{place}: every user of the machine can read {file}, which contains a secret. Remove this permission "
                "with 'chmod o-r'."
            )
    return found


def shown(config: Config) -> dict[str, Any]:
    """The effective configuration by sections, without secrets."""
    found = typing.cast(dict[str, Any], msgspec.to_builtins(config))
    found["storage"]["options"] = _redacted(config.storage.options)
    return {name: section for name, section in found.items() if section is not None}


def is_secret(option: str) -> bool:
    """Whether the value of a storage option is secret."""
    return _SECRET.fullmatch(option) is not None


def _redacted(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        if isinstance(value, Mapping) and _is_reference(value)
        else _redacted(value)
        if isinstance(value, Mapping)
        else value
        if isinstance(value, (bool, int, float)) or not _SECRET.fullmatch(name)
        else "***"
        for name, value in options.items()
    }


class Configuration:
    """The configuration of a running server, which can be read again. ``file``: the TOML file, if any. ``above``: the
    values from the command line, which override the file. ``config``: the configuration in effect. ``seen``: as for
    ``Source``.
    """

    def __init__(self, file: Path | None, above: Given) -> None:
        """Raises CallError."""
        self._file = file
        self._above = above
        read(above, "The command line")
        self.config = self._read()
        self.seen = states_of(self.files())
        self._of_storage = self._storage_state()
        self._next = self.config

    def _read(self) -> Config:
        if self._file is None:
            return read(self._above, "The command line")
        return read(merged(parse(self._file), self._above), str(self._file))

    def settings(self) -> Settings:
        """The settings of the configuration in effect, with the current content of the files of secrets. Raises
        CallError.
        """
        self._next = self.config
        return settings_of(self.config)

    def reread(self) -> Settings:
        """The settings of the file as it is now. They take effect only when ``accept`` is called. Raises CallError."""
        found = self._read()
        settings = settings_of(found)
        self._next = found
        return settings

    def accept(self) -> None:
        """Make the configuration that was read last the one in effect."""
        for name in ("catalog", "storage"):
            if getattr(self.config, name) != getattr(self._next, name):
                log.warning("[%s] has changed in the configuration: restart the server to put this into effect", name)
        before, self._of_storage = self._of_storage, self._storage_state()
        for file in (file for file, state in self._of_storage.items() if state != before[file]):
            log.warning("%s, of [storage], has changed: this takes effect when the server is restarted", file)
        self.config = dataclasses.replace(self._next, catalog=self.config.catalog, storage=self.config.storage)

    def _storage_state(self) -> FileStates:
        return states_of(files_of(self.config.storage).values())

    def files(self) -> Sequence[str]:
        """The files to watch for changes: those that the configuration names. The configuration file itself is not
        watched, because an operator may be in the middle of editing it.
        """
        return sorted(files_of(self.config).values())
