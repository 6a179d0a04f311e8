#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A full arena: the write gets ENOSPC, statfs had said so within 5 %, what is there reads right, and
# deleting, truncating and overwriting still work; then there is room again. A kill -9 of the full
# mount loses nothing.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
arena=64M
one_mount 256M
python3 - "$mnt" "$seed" <<'END' || fail "a full arena"
import errno, hashlib, json, os, random, sys, time
d = sys.argv[1]
random.seed(int(sys.argv[2]))
print("seed", sys.argv[2])

def free():
    s = os.statvfs(d)
    assert s.f_bavail <= s.f_bfree <= s.f_blocks
    return s.f_bavail * s.f_frsize

def freed(at_least):
    "What is deleted comes free a moment later, once the kernel has forgotten it."
    end = time.monotonic() + 30
    while free() < at_least:
        assert time.monotonic() < end, free()
        time.sleep(0.05)

def put(name, data):
    fd = os.open(d + "/" + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        at = 0
        while at < len(data):
            at += os.write(fd, data[at:at + (1 << 20)])
    finally:
        os.close(fd)

def refused(action, *args):
    try:
        action(*args)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        return True
    return False

promised, written, sums, n = free(), 0, {}, 0
while True:
    data = random.randbytes(1 << 20)
    name = "big%d" % n
    if refused(put, name, data):
        got = os.path.getsize(d + "/" + name)
        assert open(d + "/" + name, "rb").read() == data[:got], \
            "what a refused write left is not its beginning"
        written += got
        sums[name] = hashlib.sha256(data[:got]).hexdigest()
        break
    sums[name] = hashlib.sha256(data).hexdigest()
    written += len(data)
    n += 1
print("statfs promised %d, %d were written: %.1f %%" % (
    promised, written, 100 * written / promised))
assert abs(written - promised) <= promised * 0.05, "statfs and what could be written disagree"
assert free() <= promised * 0.05, free()
# ENOSPC stays a plain error of that write: append, mmap-less extension, another file
assert refused(put, "more", random.randbytes(4 << 20))
os.unlink(d + "/more")

def check():
    for name, want in sums.items():
        got = hashlib.sha256(open(d + "/" + name, "rb").read()).hexdigest()
        assert got == want, name
check()
# truncate, also to the middle of what there is
os.truncate(d + "/big1", 300000)
sums["big1"] = hashlib.sha256(open(d + "/big1", "rb").read()).hexdigest()
# overwrite in place
with open(d + "/big2", "r+b", buffering=0) as f:
    for at in (0, 5000, 500000):
        f.seek(at)
        f.write(b"y" * 3000)
sums["big2"] = hashlib.sha256(open(d + "/big2", "rb").read()).hexdigest()
# delete, and the room is there again
for name in ("big3", "big4", "big5", "big6"):
    os.unlink(d + "/" + name)
    del sums[name]
freed(3 << 20)
data = random.randbytes(2 << 20)
put("again", data)
sums["again"] = hashlib.sha256(data).hexdigest()
check()
# names and attributes still work with no room for values
while not refused(put, "filler%d" % len(sums), b"z" * 65536):
    sums["filler%d" % len(sums)] = hashlib.sha256(b"z" * 65536).hexdigest()
os.rename(d + "/again", d + "/renamed")
sums["renamed"] = sums.pop("again")
os.chmod(d + "/renamed", 0o600)
os.mkdir(d + "/dir")
check()
json.dump(sums, open(sys.argv[1] + "/../sums", "w"))
END
crash_mount
python3 - "$mnt" "$tmp/sums" <<'END' || fail "after the crash"
import errno, hashlib, json, os, sys, time
for name, want in json.load(open(sys.argv[2])).items():
    assert hashlib.sha256(open(sys.argv[1] + "/" + name, "rb").read()).hexdigest() == want, name
for name in os.listdir(sys.argv[1]):
    path = sys.argv[1] + "/" + name
    os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
end = time.monotonic() + 30
while (s := os.statvfs(sys.argv[1])).f_bavail < s.f_blocks * 0.95: # forgotten a moment later
    assert time.monotonic() < end, (s.f_bavail, s.f_blocks)
    time.sleep(0.05)
# one value as large as the arena
promised, size, sums = s.f_bavail * s.f_frsize, 0, [hashlib.sha256(), hashlib.sha256()]
with open(sys.argv[1] + "/whole", "w+b", buffering=0) as f:
    try:
        while True:
            piece = os.urandom(1 << 20)
            got = f.write(piece)
            sums[0].update(piece[:got])
            size += got
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    assert size >= promised * 0.95 and os.path.getsize(f.name) == size, (size, promised)
    f.seek(0)
    while data := f.read(1 << 20):
        sums[1].update(data)
assert sums[0].digest() == sums[1].digest()
os.unlink(f.name)
END
