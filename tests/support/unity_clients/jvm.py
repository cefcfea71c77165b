"""A JVM without Spark that has Unity Catalog's Java client and the Delta kernel on its class path, driven over py4j."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.spark.jars import java_command, require_java, s3a_jars, unity_jars

# The same options as for Spark's JVMs: in a JVM that runs for minutes, the C2 compiler does not pay off.
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx768m", "-Duser.timezone=UTC")
# py4j calls methods of the JDK's own collections and Optionals by reflection. Hadoop, and what its S3A file system
# needs besides the jars of ``s3a_jars``.
_OF_PYSPARK = (
    "hadoop-client-*.jar",
    "httpclient-4*.jar",
    "httpcore-4*.jar",
    "commons-codec-*.jar",
    "commons-lang3-*.jar",
    "jcl-over-slf4j-*.jar",
    "guava-*.jar",
    "failureaccess-*.jar",
)
_OPEN = tuple(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.util", "java.util.stream", "java.lang"))


@dataclass(frozen=True)
class Cause:
    """An exception in Java: the name of its class without the package, and its message."""

    type: str
    message: str


class JavaError(Exception):
    """An exception that was raised in Java. ``causes``: the exception and its causes, outermost first."""

    def __init__(self, causes: tuple[Cause, ...], raised: Any = None) -> None:
        super().__init__("; caused by ".join(f"{each.type}: {each.message}" for each in causes))
        self.causes = causes
        #: The exception itself.
        self.raised = raised

    @property
    def type(self) -> str:
        return self.causes[0].type

    @property
    def types(self) -> list[str]:
        return [each.type for each in self.causes]


class Jvm:
    """``classes``: the packages and classes, as py4j shows them."""

    def __init__(self) -> None:
        import pyspark
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        require_java()
        of_pyspark = Path(pyspark.__file__).parent / "jars"
        [py4j] = of_pyspark.glob("py4j-*.jar")
        jars = [*unity_jars(), *(jar for pattern in _OF_PYSPARK for jar in of_pyspark.glob(pattern)), *s3a_jars()]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in `stop`)
        port, token, self._process = launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join(map(str, jars)),
            javaopts=[*_JAVA, *_OPEN],
            java_path=java_command(),
            die_on_exit=True,
            redirect_stderr=self._errors,
            enable_auth=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True, auto_field=True)
        )
        self.classes: Any = self._gateway.jvm

    def stop(self) -> None:
        self._gateway.shutdown()
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.stdout.close()
            self._errors.close()

    def log(self) -> str:
        """What the JVM has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read()

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Raise exceptions from Java as JavaError."""
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            raise self.error(error.java_exception) from None

    def error(self, raised: Any) -> JavaError:
        causes: list[Cause] = []
        cause = raised
        while cause is not None and len(causes) < 20:
            causes.append(Cause(cause.getClass().getSimpleName(), str(cause.getMessage())))
            cause = cause.getCause()
        return JavaError(tuple(causes), raised)

    def map(self, values: Mapping[str, str | None]) -> Any:
        made = self.classes.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def strings(self, values: Sequence[str]) -> Any:
        """A ``String[]``."""
        return self.array_of(self.classes.java.lang.String, list(values))

    def objects(self, kind: str, values: Sequence[Any]) -> Any:
        """A ``List`` of objects of ``java.lang.<kind>``. py4j would pass a small number as an Integer."""
        java = self.classes.java
        made = java.util.ArrayList()
        if kind not in ("Long", "Double"):
            for value in values:
                made.add(value)
            return made
        numbers = self.array_of(self.classes.long if kind == "Long" else self.classes.double, [v or 0 for v in values])
        made.addAll(java.util.Arrays.stream(numbers).boxed().toList())
        for index, value in enumerate(values):
            if value is None:
                made.set(index, None)
        return made

    def array_of(self, kind: Any, values: list[Any]) -> Any:
        """An array of objects of one class."""
        made = self._gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def optional_long(self, value: int | None) -> Any:
        """An ``Optional<Long>``. py4j would pass a small number as an Integer."""
        if value is None:
            return self.classes.java.util.Optional.empty()
        return self.classes.java.util.stream.LongStream.rangeClosed(value, value).boxed().findFirst()

    def optional(self, value: Any) -> Any:
        return self.classes.java.util.Optional.ofNullable(value)


class Mapper:
    """Jackson's ObjectMapper of a client: converts between objects of the client's classes and JSON values in
    Python."""

    def __init__(self, jvm: Jvm, mapper: Any) -> None:
        self._jvm, self._mapper = jvm, mapper

    def plain(self, value: Any) -> Any:
        """An object of the client as the JSON that the client would send."""
        with self._jvm.errors():
            return None if value is None else json.loads(self._mapper.writeValueAsString(value))

    def made(self, name: str, value: Any) -> Any:
        """An object of the class ``name`` (with its package)."""
        with self._jvm.errors():
            return self._mapper.readValue(json.dumps(value), self._jvm.classes.java.lang.Class.forName(name))
