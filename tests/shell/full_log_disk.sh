#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The disk has no room for a checkpoint: once the log is full writes get ENOSPC, with a clear line
# for the operator; reads and deletes go on. When room is made, everything goes on, and nothing
# acknowledged is lost.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
mkdir "$tmp/disk" "$tmp/mnt"
mount -t tmpfs -o size=36M tmpfs "$tmp/disk" 2>/dev/null || skip "mount is not permitted here"
expect 0 "$MKFS" -q -s 32M "$tmp/disk/v"
mnt=$tmp/mnt
serve()
{
	"$KVFS" mount -f -o arena=256M,timeout=30 "$tmp/disk/v" "$mnt" 2>>"$tmp/daemon" &
	daemon=$!
	wait_for "[ \"\$(status_of disk/v .pid)\" = $daemon ]" 30
}

serve
cat >"$tmp/check.py" <<'END'
import errno, os, pickle, random, sys, threading, time
mnt, state, what = sys.argv[1:4]

def load():
    return pickle.load(open(state, "rb"))

def save(keys):
    pickle.dump(keys, open(state, "wb"))

def value(seed):
    return random.Random(seed).randbytes(60000)

def put(n):
    fd = os.open("%s/k%d" % (mnt, n), os.O_WRONLY | os.O_CREAT)
    try:
        os.pwrite(fd, value(n), 0)
    finally:
        os.close(fd)

def check(keys):
    for n in keys:
        assert open("%s/k%d" % (mnt, n), "rb").read() == value(n), "key %d" % n

if what == "fill":
    keys = []
    for n in range(100000):
        try:
            put(n)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            break
        keys.append(n)
    else:
        sys.exit("the log never filled")
    print("%d writes of 60 000 bytes, then ENOSPC" % len(keys))
    assert len(keys) > 50
    check(keys)
    for n in keys[:40]:
        os.unlink("%s/k%d" % (mnt, n))
    save(keys[40:])
    check(load())
elif what == "orphans":
    # unlinked while open, closed when not even what is kept for deletions has room left
    keys = load()
    fds = [os.open("%s/k%d" % (mnt, n), os.O_RDONLY) for n in keys[:30]]
    for n in keys[:30]:
        os.unlink("%s/k%d" % (mnt, n))
    keys = keys[30:]
    fd = os.open("%s/k%d" % (mnt, keys.pop()), os.O_RDWR)
    for n in range(200000):
        try:
            os.ftruncate(fd, 60000 - n % 2)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            break
    else:
        sys.exit("the room for deletions never filled")
    print("%d truncations, then ENOSPC" % n)
    # who deletes has to wait now; others, on the same processor, have not
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

    def delete():
        for n in keys[:4]:
            try:
                os.unlink("%s/k%d" % (mnt, n))
            except OSError as e:
                assert e.errno == errno.ENOSPC, e
                refused.append(n)

    refused, looks, longest = [], 0, 0
    deleter = threading.Thread(target=delete)
    deleter.start()
    while deleter.is_alive():
        began = time.monotonic()
        os.statvfs(mnt)
        longest = max(longest, time.monotonic() - began)
        looks += 1
    deleter.join()
    print("%d looks during 4 deletes, %d of them refused, the longest took %.3f s" % (
        looks, len(refused), longest))
    assert refused and looks >= 40, "deletes held up the others"
    keys = [n for n in keys if n >= keys[4] or n in refused]
    save(keys)
    for f in fds:
        os.close(f)
elif what == "freed":
    s = os.statvfs(mnt)
    sys.exit(s.f_files - s.f_ffree - 1 - len(os.listdir(mnt)))
elif what == "check":
    check(load())
    there = {int(name[1:]) for name in os.listdir(mnt)}
    assert set(load()) <= there
    assert all(n >= 40 for n in there), "a deleted key is back"
elif what == "one":
    try:
        put(int(sys.argv[4]))
    except OSError as e:
        sys.exit(e.errno)
    save(load() + [int(sys.argv[4])])
elif what == "more":
    keys = load()
    for n in range(200000, 200000 + 1500):
        put(n)
        keys.append(n)
        if len(keys) > 300:
            os.unlink("%s/k%d" % (mnt, keys.pop(100)))
    save(keys)
    check(keys)
END
run() { timeout 300 python3 "$tmp/check.py" "$mnt" "$tmp/state" "$@"; }

run fill || fail "filling: $(cat "$tmp/daemon")"
grep -q 'checkpoint failed: No space left on device' "$tmp/daemon" ||
	fail "no clear line: $(cat "$tmp/daemon")"
# once each time that it begins to: deletes in between may let one succeed
[ "$(wc -l <"$tmp/daemon")" -le 6 ] || fail "too many messages: $(cat "$tmp/daemon")"
expect 1 "$KVFS" checkpoint "$tmp/disk/v"
one_line 'No space left on device'
run orphans || fail "unlinked files"
! run freed || fail "files were freed without log room"

# a crash in this state: everything is in the log
kill_pids "$daemon"
wait "$daemon" 2>/dev/null || true
serve
run check || fail "after the crash: $(cat "$tmp/daemon")"

mount -o remount,size=400M "$tmp/disk"
wait_for "run one 150000" 30
wait_for "run freed" 30
run more || fail "after room was made: $(cat "$tmp/daemon")"
grep -q 'checkpoints succeed again' "$tmp/daemon" || fail "not said: $(cat "$tmp/daemon")"
expect 0 "$KVFS" checkpoint "$tmp/disk/v"
kill_pids "$daemon"
wait "$daemon" 2>/dev/null || true
serve
run check || fail "after the second crash"
expect 0 "$KVFS" umount "$mnt"
wait "$daemon" || fail "the daemon gave $?"
expect 0 "$FSCK" "$tmp/disk/v"
