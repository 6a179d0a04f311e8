#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A fallocate(2) of a gigabyte holds up neither the other requests nor the mirror, which stays live
# though it does the same; the room is there, zeroed. One that can't succeed takes nothing.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
size_mib=$((1024 * share / 100))
[ "$size_mib" -ge 192 ] || size_mib=192
arena=$((size_mib + 256))M
available_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
[ "$available_mib" -gt $((3 * size_mib + 1024)) ] ||
	skip "too little memory for two nodes with $arena each"
make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
for uring in auto off; do
	mount_volume "mirror=shm:$tmp/s.sock,timeout=10,uring=$uring"
	wait_for "in_sync m 1" 30
	before=$(status_of m .lsn)
	python3 - "$tmp/m" "$size_mib" <<'END' || fail "uring=$uring"
import errno, os, sys, threading, time
d, size = sys.argv[1], int(sys.argv[2]) << 20
fd = os.open(d + "/large", os.O_RDWR | os.O_CREAT)

def look_on():
    "How often the daemon could be asked while it reserved."
    took = []
    def reserve():
        began = time.monotonic()
        os.posix_fallocate(fd, 1000, size)
        took.append(time.monotonic() - began)
    t = threading.Thread(target=reserve)
    os.statvfs(d)
    t.start()
    looks, longest = 0, 0.0
    while t.is_alive():
        began = time.monotonic()
        os.statvfs(d) # asks the daemon each time, which looks under the store's lock
        longest = max(longest, time.monotonic() - began)
        looks += 1
    t.join()
    assert took, "it failed"
    print("%d MiB in %.2f s, %d looks meanwhile, the longest took %.3f s" % (
        size >> 20, took[0], looks, longest))
    return looks

for attempt in range(3): # who looks may have had no processor
    os.ftruncate(fd, 0)
    looks = look_on()
    if looks >= 10:
        break
assert looks >= 10, looks
st = os.fstat(fd)
assert st.st_size == size + 1000 and st.st_blocks * 512 >= size, (st.st_size, st.st_blocks)
for at in range(0, size, size // 16):
    assert os.pread(fd, 4096, at) == bytes(4096), at
free = os.statvfs(d).f_bavail
try:
    os.posix_fallocate(fd, 0, 4 * size)
    sys.exit("more than the arena was reserved")
except OSError as e:
    assert e.errno == errno.ENOSPC, e
assert os.statvfs(d).f_bavail == free and os.fstat(fd).st_size == size + 1000
END
	after=$(status_of m .lsn)
	[ $((after - before)) -ge $((size_mib / 16)) ] ||
		fail "$((after - before)) records: not in pieces"
	[ "$(status_of m '.mirrors[0].state')" = live ] || fail "the mirror is not live"
	wait_for "in_sync m 1" 30
	same_state m s
	rm "$tmp/m/large"
	unmount m
done
