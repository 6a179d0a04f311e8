#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Python's shelve, a pickle replaced by os.replace, and mmap keep their values over a kill -9.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
one_mount 64M
python3 - "$mnt" <<'END' || fail "writing"
import mmap, os, pickle, shelve, sys
d = sys.argv[1]
with shelve.open(d + "/shelf") as s:
    for n in range(500):
        s["key %d" % n] = {"n": n, "text": "x" * n}
    for n in range(0, 500, 5):
        del s["key %d" % n]
    for n in range(1, 500, 5):
        s["key %d" % n] = n
for n in range(50):
    with open(d + "/state.tmp", "wb") as f:
        pickle.dump(list(range(n)), f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(d + "/state.tmp", d + "/state")
with open(d + "/mapped", "wb+") as f:
    f.truncate(100000)
    with mmap.mmap(f.fileno(), 0) as m:
        m[70000:70005] = b"hello"
        m.flush()
END
crash_mount
python3 - "$mnt" <<'END' || fail "reading after the crash"
import os, pickle, shelve, sys
d = sys.argv[1]
with shelve.open(d + "/shelf", flag="r") as s:
    assert len(s) == 400, len(s)
    for n in range(500):
        if n % 5 == 0:
            assert "key %d" % n not in s
        else:
            assert s["key %d" % n] == (n if n % 5 == 1 else {"n": n, "text": "x" * n})
assert pickle.load(open(d + "/state", "rb")) == list(range(49))
assert not os.path.exists(d + "/state.tmp")
data = open(d + "/mapped", "rb").read()
assert len(data) == 100000 and data[70000:70005] == b"hello" and data.count(b"\0") == 100000 - 5
END
