"""Unity Catalog's own Java client: the UC Delta API and the general calls; the client's own classes read the errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.unity_clients.jvm import JavaError, Jvm, Mapper

_CLIENT = "io.unitycatalog.client"


class UnityError(Exception):
    """An error response. ``type``: the error's type as the client's DeltaApiException reads it, or None for a response
    that it does not take for an error of the UC Delta API."""

    def __init__(self, status: int, type: str | None, message: str | None, body: str) -> None:
        super().__init__(f"{status} {type}: {message or body}")
        self.status, self.type, self.message, self.body = status, type, message, body


class _Api:
    """Calls of one of the client's API classes. Responses are plain JSON."""

    def __init__(self, client: OfficialClient, api: Any) -> None:
        self._client, self._api = client, api

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return self._client.call(lambda: getattr(self._api, method)(*arguments))

        return call


class OfficialClient:
    """The client for a server at ``url``. ``attempts``: how many times it sends a request in all, if its retry policy
    repeats a failure."""

    def __init__(self, jvm: Jvm, url: str, token: str = "any", attempts: int = 1) -> None:
        self.jvm = jvm
        client = jvm.classes.io.unitycatalog.client
        retries = client.retry.JitterDelayRetryPolicy.builder().maxAttempts(attempts).initDelayMs(1).build()
        tokens = client.auth.TokenProvider.create(jvm.map({"type": "static", "token": token}))
        made = client.ApiClientBuilder.create().uri(url).tokenProvider(tokens).retryPolicy(retries).build()
        self._made = made
        self._mapper = Mapper(jvm, made.getObjectMapper())
        self._errors = client.delta.DeltaApiException
        delta = client.delta.api
        self.tables = _Api(self, delta.DeltaTablesApi(made))
        self.configuration = _Api(self, delta.DeltaConfigurationApi(made))
        self.credentials = _Api(self, delta.DeltaTemporaryCredentialsApi(made))
        general = client.api
        self.catalogs = _Api(self, general.CatalogsApi(made))
        self.schemas = _Api(self, general.SchemasApi(made))
        self.older_tables = _Api(self, general.TablesApi(made))
        self.older_commits = _Api(self, general.DeltaCommitsApi(made))
        self.older_credentials = _Api(self, general.TemporaryCredentialsApi(made))
        self.metastores = _Api(self, general.MetastoresApi(made))
        self.functions = _Api(self, general.FunctionsApi(made))
        self.volumes = _Api(self, general.VolumesApi(made))
        self.models = _Api(self, general.RegisteredModelsApi(made))
        self.grants = _Api(self, general.GrantsApi(made))
        self.storage_credentials = _Api(self, general.CredentialsApi(made))
        self.external_locations = _Api(self, general.ExternalLocationsApi(made))

    def call(self, request: Callable[[], Any]) -> Any:
        try:
            with self.jvm.errors():
                answer = request()
        except JavaError as error:
            if error.type != "ApiException":
                raise
            raise self._error(error.raised) from None
        return answer if answer is None or isinstance(answer, str | int) else self._mapper.plain(answer)

    def _error(self, raised: Any) -> UnityError:
        found = getattr(self._errors, "from")(raised)
        body = str(raised.getResponseBody())
        if not found.isPresent():
            return UnityError(raised.getCode(), None, None, body)
        delta = found.get()
        kind = delta.getErrorType()
        assert delta.getErrorCode() == raised.getCode(), body
        return UnityError(raised.getCode(), None if kind is None else kind.toString(), delta.getErrorMessage(), body)

    def delta(self, name: str, value: Any) -> Any:
        """An object of a class of the UC Delta API, such as ``DeltaCreateTableRequest``."""
        return self._mapper.made(f"{_CLIENT}.delta.model.{name}", value)

    def general(self, name: str, value: Any) -> Any:
        """An object of a class of the general API, such as ``CreateSchema``."""
        return self._mapper.made(f"{_CLIENT}.model.{name}", value)

    def operation(self, name: str) -> Any:
        """READ or READ_WRITE."""
        return self.jvm.classes.io.unitycatalog.client.delta.model.DeltaCredentialOperation.fromValue(name)

    def uuid(self, value: str) -> Any:
        return self.jvm.classes.java.util.UUID.fromString(value)
