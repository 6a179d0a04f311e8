#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A primary whose arena is full, and a mirror with the same arena: what the primary overwrites in
# place the mirror follows, also while its own checkpoint still needs what was there, after a start
# and after a resync.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
arena=64M
make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
mount_volume "mirror=shm:$tmp/s.sock"
cat >"$tmp/use.py" <<'END'
import errno, os, random, sys
d, what, seed = sys.argv[1:4]
random.seed(int(seed))
print("seed", seed)
if what == "fill":
    n = 0
    try:
        while True:
            with open("%s/f%d" % (d, n), "wb", buffering=0) as f:
                f.write(random.randbytes(1 << 20))
            n += 1
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
    assert n > 40, n
files = [os.open(d + "/" + name, os.O_RDWR) for name in sorted(os.listdir(d))]
sizes = [os.fstat(f).st_size for f in files]
full = 0
for n in range(4000): # about 100 MB: several pools of the log
    at = random.randrange(len(files))
    size = random.choice((3000, 65536))
    if sizes[at] < size:
        continue
    off = random.randrange(sizes[at] - size + 1)
    try:
        os.pwrite(files[at], random.randbytes(size), off // size * size)
    except OSError as e: # the primary's own checkpoint needs it
        assert e.errno == errno.ENOSPC, e
        full += 1
print(full, "of 4000 refused")
assert full < 4000
END
use()
{
	timeout 300 python3 "$tmp/use.py" "$tmp/m" "$1" "$seed" || fail "$1 (seed $seed)"
	wait_for "in_sync m 1" 30
	same_state m s
}

use fill
use again
stop_mirror()
{
	stop_pid=$(pid_of s)
	kill -TERM "$stop_pid"
	$await_end "$stop_pid" 60 || fail "the mirror does not stop"
}
stop_mirror
start_mirror s '' "shm:$tmp/s.sock"
wait_for "in_sync m 1" 60
use started
stop_mirror
rm -rf "$tmp/s"
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
wait_for "in_sync m 1" 60
use resynced
rm "$tmp/m/"*
wait_for "in_sync m 1" 30
same_state m s
unmount m
