#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A client that sends its request a byte at a time does not hold up the end.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
mount_volume
cat >"$tmp/trickle.py" <<'END'
import os, socket, sys
os.chdir(sys.argv[1])
s = socket.socket(socket.AF_UNIX)
s.connect("control")
s.settimeout(1)
said = False
for _ in range(60):
    try:
        s.send(b" ")
        if not said:
            open(sys.argv[2], "w").close()
            said = True
        if s.recv(1) == b"":
            break
    except socket.timeout:
        continue
    except OSError:
        break
END
"${PYTHON:-python3}" "$tmp/trickle.py" "$tmp/v" "$tmp/trickling" &
trickler=$!
wait_for "[ -e '$tmp/trickling' ]" 10
read_clock
began=$now
unmount m
read_clock
[ $((now - began)) -lt 30 ] || fail "the end took more than 30 s"
kill -0 "$trickler" 2>/dev/null && kill "$trickler"

# nor does it keep its connection for longer than others
mount_volume
read_clock
began=$now
timeout 50 "${PYTHON:-python3}" "$tmp/trickle.py" "$tmp/v" "$tmp/trickling" ||
	fail "it was served for ever"
read_clock
[ $((now - began)) -lt 30 ] || fail "it was served for more than 30 s"
unmount m
