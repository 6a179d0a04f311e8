#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# flock(1) and fcntl locks exclude another process, and go with their holder, even a killed one.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need flock python3
one_mount 64M
: >"$mnt/lock"
echo 0 >"$mnt/count"
add()
{
	for _ in $(seq 100); do
		flock "$mnt/lock" sh -c "read -r n <'$mnt/count'; echo \$((n + 1)) >'$mnt/count'"
	done
}
add &
other=$!
add
wait $other
[ "$(cat "$mnt/count")" -eq 200 ] ||
	fail "$(cat "$mnt/count") of 200 additions: the lock does not exclude"

mkfifo "$tmp/go"
flock "$mnt/lock" sh -c "echo held >'$tmp/held'; exec cat '$tmp/go'" >/dev/null &
exec 3>"$tmp/go"
wait_for "[ -s '$tmp/held' ]" 20
flock -n "$mnt/lock" true && fail "a second exclusive lock was given"
flock -n -s "$mnt/lock" true && fail "a shared lock was given beside an exclusive one"
exec 3>&-
flock -w 20 "$mnt/lock" true || fail "the lock did not go with its holder"

python3 - "$mnt/lock" <<'END' || fail "fcntl locks"
import fcntl, os, signal, sys
f = open(sys.argv[1], "r+")
r, w = os.pipe()
child = os.fork()
if child == 0:
    g = open(sys.argv[1], "r+")
    fcntl.lockf(g, fcntl.LOCK_EX, 10, 5)
    os.write(w, b"x")
    signal.pause()
os.read(r, 1)
try:
    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0)
    sys.exit("a lock of [0, 10) was given beside one of [5, 15)")
except OSError:
    pass
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
signal.alarm(20)
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
END
