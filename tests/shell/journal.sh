#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a daemon says once its standard error is gone comes to the journal: on a socket of ours at
# /dev/log, in a mount namespace of its own, with program, process, priority and all of the text.
if [ "$(id -u)" -eq 0 ] && [ -z "${KVFS_TEST_JOURNAL:-}" ]; then
	KVFS_TEST_JOURNAL=1
	export KVFS_TEST_JOURNAL
	unshare -m true 2>/dev/null || {
		echo "SKIP: no mount namespace of its own" >&2
		exit 77
	}
	exec unshare -m "$0" "$@"
fi
TMPDIR=${TMPDIR:-/tmp} # not below /dev
export TMPDIR
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
# A /dev that is not the machine's.
mkdir "$tmp/dev"
mount -t tmpfs none "$tmp/dev"
for node in null zero full random urandom tty fuse; do
	[ ! -e "/dev/$node" ] || cp -a "/dev/$node" "$tmp/dev/$node"
done
mkdir "$tmp/dev/shm"
mount --bind /dev/shm "$tmp/dev/shm"
mount --rbind "$tmp/dev" /dev

python3 - "$tmp/journal" <<'END' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("/dev/log")
with open(sys.argv[1], "w") as f:
    while True:
        f.write(s.recv(65536).decode() + "\n")
        f.flush()
END
wait_for "[ -S /dev/log ] && [ -f '$tmp/journal' ]" 20

make_volume v
mount_volume
pid=$(pid_of m)
[ "$(readlink "/proc/$pid/fd/2")" = /dev/null ] || fail "it has a standard error yet"
exec 9>"$tmp/m/open"
kill -TERM "$pid"
$await_end "$pid" 60 || fail "it does not stop"
exec 9>&-
# 24: LOG_DAEMON; 6 and 4: information, warning
tag="[A-Z][a-z][a-z] [ 0-9][0-9] [0-9:]* kvfs\[$pid\]"
said() # PRIORITY TEXT: it has come to the journal, which may be reading yet
{
	wait_for "grep -Eq '^<$1>$tag: $tmp/$2' '$tmp/journal'" 20
}
said 30 'v: stopping on a signal$'
said 28 'm was in use and is taken away from under its users'
