#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# df's available is what a plain large write gets, within 3 % or one write, both ways: in an empty
# arena, in one that keys of several sizes left in pieces, and in a full one. What lies in pieces
# too small for that is free, not available, and small keys are written there.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
arena=128M
one_mount 512M
timeout 300 python3 - "$mnt" "$KVFS" <<'END' || fail "df and what can be written disagree"
import errno, json, os, subprocess, sys, time
d, kvfs = sys.argv[1:]

def df():
    s = os.statvfs(d)
    assert s.f_bavail <= s.f_bfree <= s.f_blocks, (s.f_bavail, s.f_bfree, s.f_blocks)
    return s.f_bavail * s.f_frsize, s.f_bfree * s.f_frsize

def put(name, data):
    "The bytes that were written until ENOSPC, or all."
    done = 0
    fd = os.open(os.path.join(d, name), os.O_WRONLY | os.O_CREAT)
    try:
        while done < len(data):
            done += os.write(fd, data[done:])
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    finally:
        os.close(fd)
    return done

def dd(name, bs=1 << 20):
    block, fd, done = b"x" * bs, os.open(os.path.join(d, name), os.O_WRONLY | os.O_CREAT), 0
    try:
        while True:
            done += os.write(fd, block)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    os.close(fd)
    return done

def at_rest():
    "What was deleted is given back by a record of its own; a checkpoint keeps what it writes."
    s = json.loads(subprocess.check_output([kvfs, "status", "--json", d]))
    return s["store"]["orphans"] == 0 and not s["checkpoint"]["running"]

def settled():
    "df once nothing moves any more."
    last, now, end = None, df(), time.monotonic() + 60
    while (now != last or not at_rest()) and time.monotonic() < end:
        time.sleep(0.2)
        last, now = now, df()
    return now

def agrees(what, bs=1 << 20):
    avail, free = settled()
    got = dd("large", bs)
    left, _ = df()
    print("%s: df %.1f MiB available, %.1f free; dd wrote %.1f, then df %.1f" % (
        what, avail / 2**20, free / 2**20, got / 2**20, left / 2**20))
    # a write is done as a whole or not at all
    assert abs(got - avail) <= max(avail * 0.03, bs), what
    assert left <= bs + 65536, left
    os.unlink(d + "/large")
    again, _ = settled()
    assert abs(again - avail) <= 65536, (what, again)
    return avail, free

total, _ = agrees("empty")
assert total >= 0.95 * os.statvfs(d).f_blocks * 4096, total
sizes = [300, 1024, 3000, 10000, 40000, 65536, 200000]
blob, n = os.urandom(sizes[-1]), 0
# one size after another, as programs write: several of a kind, then the next
while put("k%d" % n, blob[:sizes[n // 50 % len(sizes)]]) == sizes[n // 50 % len(sizes)]:
    n += 1
os.unlink("%s/k%d" % (d, n))
assert settled()[0] <= total * 0.05, settled()
for i in range(1, n, 2):
    os.unlink("%s/k%d" % (d, i))
avail, free = agrees("in pieces")
assert 0 < avail < free, (avail, free)
agrees("in pieces, 64 KiB writes", 65536)
agrees("in pieces, odd writes", 100000)
# small keys find the pieces of any size, but for those that are smaller yet
small = 0
while put("s%d" % small, blob[:1024]) == 1024:
    small += 1
print("in pieces, %.1f MiB free: %d keys of 1 KiB went there" % (free / 2**20, small))
assert 0.8 * free <= small * 1024 <= free, (small * 1024 / free, free)
for i in range(small + 1):
    os.unlink("%s/s%d" % (d, i))
again, _ = settled()
assert abs(again - avail) <= 65536, (again, avail)
# the same where large values have taken theirs
got = dd("large")
_, free = df()
small = 0
while put("s%d" % small, blob[:1024]) == 1024:
    small += 1
print("full for large values, %.1f MiB free: %d keys of 1 KiB went there" % (free / 2**20, small))
assert 0.8 * free <= small * 1024 <= free, (small * 1024 / free, free)
for i in range(0, n, 2):
    os.unlink("%s/k%d" % (d, i))
for i in range(small + 1):
    os.unlink("%s/s%d" % (d, i))
os.unlink(d + "/large")
# all is given back: nothing is lost to having been in pieces
assert abs(settled()[0] - total) <= total * 0.01, (settled(), total)
# a fallocate is held to the same
fd = os.open(d + "/reserved", os.O_WRONLY | os.O_CREAT)
try:
    os.posix_fallocate(fd, 0, int(total * 1.05))
    raise SystemExit("a fallocate of more than there is")
except OSError as e:
    assert e.errno == errno.ENOSPC, e
os.posix_fallocate(fd, 0, int(total * 0.97))
os.close(fd)
END
