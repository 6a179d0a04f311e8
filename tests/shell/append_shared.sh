#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Several processes append to one file at once (O_APPEND): each line is there whole, once, and
# behind those that its writer wrote before; so it is after a kill -9 and on a mirror.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
lines=$(portion 1500)
for uring in auto off; do
	mount_volume "mirror=shm:$tmp/s.sock,uring=$uring"
	python3 - "$tmp/m/$uring" "$lines" "$seed" <<'END' || fail "uring=$uring (seed $seed)"
import os, random, sys
path, lines, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
children = []
for w in range(4):
    pid = os.fork()
    if pid == 0:
        random.seed(seed * 4 + w)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        for n in range(lines):
            line = b"%d %d %s\n" % (w, n, b"x" * random.randrange(3000 if n % 50 else 200000))
            if os.write(fd, line) != len(line):
                os._exit(1)
        os._exit(0)
    children.append(pid)
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
END
	wait_for "in_sync m 1" 30
	same_state m s
	kill_daemon m
	mount_volume "uring=$uring,min_mirrors=0"
	python3 - "$tmp/m/$uring" "$lines" "$seed" <<'END' || fail "uring=$uring (seed $seed)"
import random, sys
path, lines, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rng, due = [random.Random(seed * 4 + w) for w in range(4)], [0] * 4
for line in open(path, "rb"):
    w, n, rest = line.split(b" ")
    w, n = int(w), int(n)
    assert n == due[w], (w, n, due)
    assert rest == b"x" * rng[w].randrange(3000 if n % 50 else 200000) + b"\n", (w, n)
    due[w] += 1
assert due == [lines] * 4, due
END
	unmount m
done
