"""A library that makes each fsync of a process take longer, to simulate a slower disk. Needs a C compiler.

Local disks of virtual machines often confirm an fsync after less than 0.1 ms; network block devices need some
milliseconds.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void nap(void) {
    const char *given = getenv("DELTALOG_FSYNC_MS");
    double ms = given ? atof(given) : 0;
    struct timespec wait = {(long)(ms / 1000), (long)((ms - 1000 * (long)(ms / 1000)) * 1e6)};
    nanosleep(&wait, 0);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    nap();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    nap();
    return real(file);
}
"""


def environment(directory: Path, ms: float) -> dict[str, str]:
    """The environment variables with which a process waits ``ms`` in each fsync and fdatasync. The library is built in
    ``directory``."""
    source, library = directory / "slow_fsync.c", directory / "slow_fsync.so"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "DELTALOG_FSYNC_MS": f"{ms:g}"}
