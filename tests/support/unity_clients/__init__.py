"""Support for tests of the Unity Catalog server with third-party clients: Unity Catalog's Java client and the Delta
kernel in one JVM, and the server as a process."""

from tests.support.unity_clients.jvm import JavaError, Jvm
from tests.support.unity_clients.kernel import Kernel, KernelSnapshot, KernelTable
from tests.support.unity_clients.official import OfficialClient, UnityError
from tests.support.unity_clients.server import CATALOG, ROOT, UnityServer, in_front_of, unity_server

__all__ = [
    "CATALOG",
    "ROOT",
    "JavaError",
    "Jvm",
    "Kernel",
    "KernelSnapshot",
    "KernelTable",
    "OfficialClient",
    "UnityError",
    "UnityServer",
    "in_front_of",
    "unity_server",
]
