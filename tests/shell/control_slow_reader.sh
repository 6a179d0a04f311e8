#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Clients of the control socket that ask and then take nothing of a large reply hold up neither
# other clients nor the unmount. Replies fit the socket's buffer as a rule: the test makes those of
# the daemon small.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
make_volume v
mount_volume
cat >"$tmp/slow.py" <<'END'
import ctypes, os, socket, struct, sys
volume, there, pid = sys.argv[1], sys.argv[2], int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_GETFD = 434, 438
os.chdir(volume)
pidfd = libc.syscall(PIDFD_OPEN, pid, 0)

def shrink():
    """The daemon's ends of our connections get the smallest buffer that there is."""
    n = 0
    for fd in os.listdir("/proc/%d/fd" % pid):
        try:
            if not os.readlink("/proc/%d/fd/%s" % (pid, fd)).startswith("socket:"):
                continue
        except OSError:
            continue
        mine = libc.syscall(PIDFD_GETFD, pidfd, int(fd), 0)
        if mine < 0:
            if ctypes.get_errno() in (1, 38):
                sys.exit(77)
            continue
        s = socket.socket(fileno=mine)
        cred = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12) \
            if s.family == socket.AF_UNIX else struct.pack("3i", 0, 0, 0)
        if struct.unpack("3i", cred)[0] == os.getpid():
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
            n += 1
        s.close()
    return n

def call():
    s = socket.socket(socket.AF_UNIX)
    s.connect("control")
    return s

slow = [call() for _ in range(16)]
while shrink() < len(slow):
    pass
for s in slow:
    s.sendall(b'{"cmd":"metrics"}\n')
for s in slow: # its reply has begun; the rest has no room
    s.recv(1, socket.MSG_PEEK)
open(there, "w").close()
sys.stdin.read()
END
mkfifo "$tmp/hold"
pid=$(pid_of m)
"${PYTHON:-python3}" "$tmp/slow.py" "$tmp/v" "$tmp/there" "$pid" <"$tmp/hold" >"$tmp/slow" 2>&1 &
slow=$!
exec 9>"$tmp/hold"
wait_for "[ -e '$tmp/there' ] || ! kill -0 $slow 2>/dev/null" 60
if ! [ -e "$tmp/there" ]; then
	status=0
	wait "$slow" || status=$?
	[ "$status" -ne 77 ] || skip "no pidfd_getfd here"
	fail "$(cat "$tmp/slow")"
fi
read_clock
began=$now
[ "$(status_of m .pid)" = "$pid" ] || fail "no status beside clients that take no reply"
unmount m
read_clock
[ $((now - began)) -lt 8 ] || # a reply that nobody takes is given 10 s, and at the end 1 s
	fail "status and unmount took $((now - began)) s: they waited for those who take no reply"
kill "$slow" 2>/dev/null || true
