# SPDX-License-Identifier: Apache-2.0
"""Words that the rig's parts share."""
import ctypes
import os
import re
import signal

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class RigError(Exception):
    """Something the user is told in one line."""


def size(text):
    """Bytes of 64M, 1G and the like."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not found:
        raise RigError("%r is not a size; write 256M or 1G" % text)
    return int(found[1]) * UNITS[found[2]]


def die_with(parent):
    """For preexec_fn: the kernel kills this process when `parent`, which started it, ends."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
