#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mirror's view is coherent: each of 200 changes is visible there within 10 ms of its
# acknowledgement (49 of 50, and none later than 100 ms, as the machine may be busy; a sanitized
# build has more), to open, to a file kept open, to a mapping, and in the listing; no page stays
# old. The view takes no write.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
slow=
if sanitized; then
	slow=slow
fi
port=$(free_port)
expect 0 "$MKFS" -q -s 64M "$tmp/p"
for kind in tcp shm; do
	address=tcp:127.0.0.1:$port
	[ $kind = tcp ] || address=shm:$tmp/ring
	expect 0 "$MKFS" -q -f -s 64M --join "$tmp/p/key" "$tmp/m"
	start_mirror m view "$address"
	mount_primary p mnt "mirror=$address"
	wait_for "in_sync mnt 1" 30
	echo "$kind:"
	mkdir "$tmp/mnt/$kind"
	wait_for "[ -d '$tmp/view/$kind' ]" 10
	there=$tmp/view/$kind
	python3 - "$tmp/mnt/$kind" "$there" "$seed" "${KVFS_TEST_PATIENCE:-1}" "$slow" <<'END' ||
import errno, mmap, os, random, sys, time
prim, view, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
patience, slow = int(sys.argv[4]), sys.argv[5] == "slow"
random.seed(seed)
times = []

def visible(what, condition, since=None):
    """Until condition; since: of the acknowledgement, else now. What counts as late is a look that
    began after 10 ms and still saw the old state: the looks themselves may be kept waiting."""
    global acknowledged
    acknowledged = since or time.monotonic()
    looked = time.monotonic()
    behind = 0
    while not condition():
        behind = looked - acknowledged
        if behind > 5 * patience:
            return False
        looked = time.monotonic()
    times.append((time.monotonic() - acknowledged, behind, what))
    return True

def must(what, condition):
    if not visible(what, condition):
        sys.exit("after %d s not visible in the view: %s" % (5 * patience, what))

def read(path):
    try:
        with open(path, "rb", buffering=0) as f:
            return f.read()
    except FileNotFoundError:
        return None

def check(what):
    """The whole content, as soon after the change as any of it."""
    got = b""
    def same():
        nonlocal got
        got = os.pread(kept, len(content) + 1, 0)
        return got == content
    if visible("all beside " + what, same, acknowledged):
        return
    at = next((i for i in range(min(len(got), len(content))) if got[i] != content[i]),
              min(len(got), len(content)))
    bad = sum(got[i] != content[i] for i in range(min(len(got), len(content))))
    sys.exit("stale beside %s: %d of %d bytes from offset %d (page %d); %d bytes long, not %d" % (
        what, bad, len(content), at, at // 4096, len(got), len(content)))

SIZE = 300000
content = bytearray(random.randbytes(SIZE))
with open(prim + "/f", "wb", buffering=0) as f:
    f.write(content)
must("a new file", lambda: read(view + "/f") == content)
kept = os.open(view + "/f", os.O_RDONLY)
mapped = mmap.mmap(kept, 1 << 16, mmap.MAP_SHARED, mmap.PROT_READ)
assert mapped[:] == content[:1 << 16]
w = os.open(prim + "/f", os.O_WRONLY)
names = 0
for n in range(200):
    kind = n % 8
    if kind in (0, 1):                     # overwrite, seen by pread of the kept fd and by open
        at = random.randrange(len(content) - 9000)
        data = random.randbytes(random.randrange(1, 9000))
        os.pwrite(w, data, at)
        content[at:at + len(data)] = data
        must("overwrite", lambda: os.pread(kept, len(data), at) == data)
        check("an overwrite of [%d, %d), change %d" % (at, at + len(data), n))
    elif kind == 2:                        # overwrite, seen by the mapping
        at, data = random.randrange((1 << 16) - 100), random.randbytes(64)
        os.pwrite(w, data, at)
        content[at:at + 64] = data
        must("overwrite under a mapping", lambda: mapped[at:at + 64] == data)
        assert mapped[:] == content[:1 << 16], "a stale page in the mapping"
    elif kind == 3:                        # append
        data = random.randbytes(random.randrange(1, 6000))
        os.pwrite(w, data, len(content))
        content += data
        must("append", lambda: os.fstat(kept).st_size == len(content))
        check("an append, change %d" % n)
    elif kind == 4:                        # truncate, and extend over what was cut
        size = random.randrange(1 << 16, len(content) + 1)
        os.ftruncate(w, size)
        del content[size:]
        must("truncate", lambda: os.fstat(kept).st_size == size)
        os.ftruncate(w, size + 5000)
        content += bytes(5000)
        must("extend", lambda: os.pread(kept, len(content) + 1, 0) == content)
    elif kind == 5:                        # rename over
        data = random.randbytes(2000)
        with open(prim + "/tmp", "wb", buffering=0) as f:
            f.write(data)
        os.rename(prim + "/tmp", prim + "/target")
        must("rename over", lambda: read(view + "/target") == data)
    elif kind == 6:                        # a name comes, and is listed
        names += 1
        os.mkdir("%s/dir%d" % (prim, names))
        must("mkdir in the listing", lambda: "dir%d" % names in os.listdir(view))
        os.chmod("%s/dir%d" % (prim, names), 0o711)
        must("chmod", lambda: os.stat("%s/dir%d" % (view, names)).st_mode & 0o777 == 0o711)
    else:                                  # unlink
        if os.path.exists(prim + "/target"):
            os.unlink(prim + "/target")
        must("unlink", lambda: not os.path.exists(view + "/target"))
for attempt in (lambda: open(view + "/new", "w"), lambda: os.unlink(view + "/f"),
                lambda: os.open(view + "/f", os.O_WRONLY), lambda: os.truncate(view + "/f", 0)):
    try:
        attempt()
        sys.exit("the view took a write")
    except OSError as e:
        assert e.errno == errno.EROFS, e
times.sort()
late = [t for t in times if t[1] > 0.010]
median, worst = times[len(times) // 2][0], times[-1][0]
print("%d looks: visible after %.2f ms (median), %.2f ms (90 %%), %.2f ms (99 %%), "
      "%.2f ms (longest); %d not yet after 10 ms" % (len(times), median * 1e3,
      times[len(times) * 9 // 10][0] * 1e3, times[len(times) * 99 // 100][0] * 1e3, worst * 1e3,
      len(late)))
print("the latest: " + ", ".join("%s %.1f ms" % (w, t * 1e3) for t, _, w in times[-5:]))
# a busy machine may keep a thread of the mirror from its processor for some ticks
if median > (0.100 if slow else 0.010):
    sys.exit("visible after 10 ms is the rule")
if len(late) > len(times) // (2 if slow else 50):
    sys.exit("one in 50 may be late on a busy machine")
if max(t[1] for t in times) > (5 if slow else 0.100):
    sys.exit("one was not visible after 100 ms")
END
		fail "$kind: the view"
	unmount mnt
	unmount view
done
