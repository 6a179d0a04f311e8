#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SIGTERM ends a serving mount, or a mirror with a view, in good order: nothing acknowledged is
# lost, the last checkpoint has it all, nothing stays mounted, the status is 0. So it is while
# programs write and read there, and keep files open: these are left behind.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
make_volume v
make_volume s --join "$tmp/v/key"
mkdir "$tmp/m" "$tmp/view"

# serve NAME WHERE MODE OPTIONS...: in the foreground, its pid in $daemon
serve()
{
	serve_volume=$1 serve_where=$2 serve_mode=$3
	"$KVFS" "$serve_mode" -f -o "arena=256M,$4" "$tmp/$serve_volume" "$tmp/$serve_where" \
		2>"$tmp/said" &
	daemon=$!
	wait_for "[ \"\$(status_of $serve_volume .pid)\" = $daemon ]" 30
}

# stopped WHERE: after SIGTERM all is as it should be.
stopped()
{
	kill -TERM "$daemon"
	$await_end "$daemon" 30 || fail "it does not end: $(cat "$tmp/said")"
	stopped_status=0
	wait "$daemon" || stopped_status=$?
	[ "$stopped_status" -eq 0 ] || fail "it gave $stopped_status: $(cat "$tmp/said")"
	! grep -qF " $tmp/$1 " /proc/self/mountinfo || fail "$1 is mounted"
	expect 0 "$FSCK" "$tmp/$2"
}

# 1. under load
serve v m mount "timeout=10"
"$LOADER" run "$tmp/m" "$tmp/journal" 60 4 >"$tmp/load" 2>&1 &
load=$!
wait_for "[ \"\$(status_of v .lsn)\" -gt 500 ]" 60
stopped m v
wait "$load" || true # it has met an error, or its directory is gone
grep -qF 'stopping on a signal' "$tmp/said" || fail "not said: $(cat "$tmp/said")"
serve v m mount "timeout=10"
[ "$(status_of v .recovery.replayed_records)" -eq 0 ] ||
	fail "the last checkpoint lacks $(status_of v .recovery.replayed_records) records"
expect 0 "$LOADER" verify "$tmp/m" "$tmp/journal"

# 2. idle, with a file open
cat >"$tmp/holder.py" <<'END'
import sys
f = open(sys.argv[1], "rb", buffering=0)
print("open", flush=True)
sys.stdin.read()
END
echo kept >"$tmp/m/kept"
mkfifo "$tmp/hold"
python3 "$tmp/holder.py" "$tmp/m/kept" <"$tmp/hold" >"$tmp/holding" &
holder=$!
exec 9>"$tmp/hold"
wait_for "grep -q open '$tmp/holding'" 20
stopped m v
grep -qF 'was in use and is taken away' "$tmp/said" || fail "not said: $(cat "$tmp/said")"
exec 9>&-
wait "$holder" || fail "the program with an open file"

# 3. a view that programs map, while it changes
serve s view mirror "listen=shm:$tmp/s.sock"
mirror=$daemon
mount_volume "mirror=shm:$tmp/s.sock,timeout=10"
wait_for "in_sync m 1" 30
cat >"$tmp/reader.py" <<'END'
import mmap, os, sys
fds = [os.open("%s/map%d" % (sys.argv[1], i), os.O_RDONLY) for i in range(8)]
print("reads", flush=True)
while True:
    for fd in fds:
        with mmap.mmap(fd, 1 << 20, prot=mmap.PROT_READ) as m:
            for at in range(0, 1 << 20, 4096):
                m[at]
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
END
cat >"$tmp/writer.py" <<'END'
import os, sys
fds = [os.open("%s/map%d" % (sys.argv[1], i), os.O_RDWR | os.O_CREAT) for i in range(8)]
for fd in fds:
    os.pwrite(fd, b"a" * (1 << 20), 0)
print("writes", flush=True)
n = 0
while True:
    n += 1
    for fd in fds:
        os.pwrite(fd, n.to_bytes(8, "big"), 4096 * (n % 256))
END
python3 "$tmp/writer.py" "$tmp/m" >"$tmp/writing" 2>&1 &
writer=$!
wait_for "grep -q writes '$tmp/writing'" 20
wait_for "[ -f '$tmp/view/map7' ]" 20
readers=
for i in 1 2 3; do
	python3 "$tmp/reader.py" "$tmp/view" >"$tmp/reading$i" 2>&1 &
	readers="$readers $!"
	wait_for "grep -q reads '$tmp/reading$i'" 20
done
daemon=$mirror
stopped view s
kill "$writer"
wait "$writer" 2>/dev/null || true
# shellcheck disable=SC2086
kill $readers 2>/dev/null || true # a read that failed has ended one
unmount m
