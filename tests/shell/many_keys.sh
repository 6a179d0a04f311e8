#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# 100 000 keys in one directory: listed fast and whole, stably while other names come and go, and
# removed by rm -rf.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
one_mount 64M
mkdir "$mnt/d"
python3 - "$mnt/d" <<'END'
import os, sys
os.chdir(sys.argv[1])
for n in range(100000):
    os.close(os.open("key-%06d" % n, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644))
END
python3 - "$mnt/d" <<'END' || fail "ls -f"
import subprocess, sys, time
best = 99
for _ in range(3):
    began = time.monotonic()
    lines = int(subprocess.check_output("ls -f '%s' | wc -l" % sys.argv[1], shell=True))
    best = min(best, time.monotonic() - began)
    assert lines == 100002, lines
print("ls -f | wc -l of 100 000 keys: %.2f s (meant: at most 1 s on a quiet machine)" % best)
assert best <= 5
END

# Names that stay are listed exactly once, whatever happens to others.
python3 - "$mnt/d" "$seed" <<'END' || fail "the listing is not stable"
import multiprocessing, os, random, sys, time
os.chdir(sys.argv[1])
random.seed(int(sys.argv[2]))
print("seed", sys.argv[2])
listed = multiprocessing.Value("i", 0)
changes = multiprocessing.Value("i", 0)

def churn():
    there = []
    while listed.value < 8:
        if there and random.random() < 0.5:
            os.unlink(there.pop(random.randrange(len(there))))
        else:
            name = "other-%d" % random.getrandbits(60)
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
            there.append(name)
        changes.value += 1
    for name in there:
        os.unlink(name)

other = multiprocessing.Process(target=churn)
other.start()
while changes.value == 0 and other.is_alive(): # so that the listings have changes beside them
    time.sleep(0.01)
try:
    while listed.value < 8:
        names = [n for n in os.listdir(".") if n.startswith("key-")]
        assert len(names) == 100000, len(names)
        assert len(set(names)) == 100000, "a name was listed twice"
        listed.value += 1
finally:
    listed.value = 8
    other.join()
assert other.exitcode == 0 and changes.value > 0
print("%d changes meanwhile" % changes.value)
assert len(os.listdir(".")) == 100000
END

# A directory that is being read while its entries are removed.
rm -rf "$mnt/d" || fail "rm -rf"
[ -z "$(ls -A "$mnt")" ] || fail "something is left"
[ "$(status_of mnt .store.names)" -eq 0 ] || fail "$(status_of mnt .store.names) names are left"
