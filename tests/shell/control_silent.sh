#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Connections to the control socket that say nothing give way, the oldest first, to those who ask;
# one that has asked does not, and there is no thread a connection without end.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need python3
make_volume v
mount_volume
cat >"$tmp/silent.py" <<'END'
import json, os, socket, sys, time
os.chdir(sys.argv[1])

def call():
    s = socket.socket(socket.AF_UNIX)
    s.connect("control")
    s.settimeout(8 * int(sys.argv[3]))
    return s

def ask(s):
    s.sendall(b'{"cmd":"status"}\n')
    got = b""
    while not got.endswith(b"\n"):
        piece = s.recv(65536)
        assert piece, "dropped"
        got += piece
    return json.loads(got)

silent = [call() for _ in range(40)]
pid = ask(call())["pid"]
def threads():
    found = 0
    for t in os.listdir("/proc/%d/task" % pid):
        try:
            found += open("/proc/%d/task/%s/comm" % (pid, t)).read().strip() == "kv-ctl"
        except OSError:
            pass
    return found
# one that has let its connection go may be there for a moment yet
until = time.monotonic() + 5 * int(sys.argv[3])
while threads() > 32:
    assert time.monotonic() < until, threads()
    time.sleep(0.01)
# the newest are there still, and may ask; the oldest were let go, without an answer
for s in silent[-8:]:
    assert ask(s)["pid"] == pid
for s in silent[:8]:
    assert s.recv(1) == b"", "the oldest was not let go"
# half a request is silence as well
half = [call() for _ in range(16)]
for s in half:
    s.sendall(b'{"cmd":')
for _ in range(16):
    assert ask(call())["pid"] == pid
open(sys.argv[2], "w").close()
sys.stdin.read()
END
mkfifo "$tmp/hold"
"${PYTHON:-python3}" "$tmp/silent.py" "$tmp/v" "$tmp/there" "${KVFS_TEST_PATIENCE:-1}" \
	<"$tmp/hold" >"$tmp/out" 2>&1 &
silent=$!
exec 9>"$tmp/hold"
wait_for "[ -e '$tmp/there' ] || ! kill -0 $silent 2>/dev/null" 60
[ -e "$tmp/there" ] || fail "$(cat "$tmp/out")"
read_clock
began=$now
[ "$(status_of m .pid)" -gt 0 ] || fail "no status"
read_clock
[ $((now - began)) -lt $((8 * ${KVFS_TEST_PATIENCE:-1})) ] || fail "status waited for the silent"
kill "$silent" 2>/dev/null || true
unmount m
