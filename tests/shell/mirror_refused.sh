#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mirror that can't be had is refused with one clear line and a non-zero exit, and leaves no
# process and no mount.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

port=$(free_port)
address=tcp:127.0.0.1:$port
expect 0 "$MKFS" -q -s 16M "$tmp/p"
mkdir "$tmp/mnt"
refused() # TEXT [OPTIONS]
{
	expect 1 timeout 60 "$KVFS" mount \
		-o "arena=64M,connect_timeout=5,mirror=$address${2:+,$2}" "$tmp/p" "$tmp/mnt"
	[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "not one line: $(cat "$tmp/err")"
	grep -Eqi -- "$1" "$tmp/err" || fail "'$1' is not in: $(cat "$tmp/err")"
	grep -qF "$port" "$tmp/err" || fail "the mirror is not named: $(cat "$tmp/err")"
	! mountpoint -q "$tmp/mnt" || fail "a mount is left"
	[ -z "$(pgrep -f -- "$KVFS mount .*$tmp/")" ] || fail "a process is left"
	[ ! -e "$tmp/p/control" ] || fail "a control socket is left"
	expect 0 "$FSCK" "$tmp/p"
}

refused "refused|unreachable|not reach|connect"

# another key under the same UUID
sed '1y/0123456789/1234567890/' "$tmp/p/key" >"$tmp/wrong"
chmod 600 "$tmp/wrong"
expect 0 "$MKFS" -q -s 16M --join "$tmp/wrong" "$tmp/m-key"
start_mirror m-key '' "$address"
refused "key"
unmount m-key

expect 0 "$MKFS" -q -s 16M "$tmp/other"
expect 0 "$MKFS" -q -s 16M --join "$tmp/other/key" "$tmp/m-other"
start_mirror m-other '' "$address"
refused "other volume|another volume|volume"
unmount m-other

expect 0 "$MKFS" -q -s 16M --join "$tmp/p/key" "$tmp/m-small"
arena=32M start_mirror m-small '' "$address"
refused "arena"
unmount m-small

# something that listens and says nothing, and one that talks nonsense
for behaviour in silent nonsense; do
	python3 - "$port" $behaviour "$tmp/ready" <<'END' &
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen(8)
s.settimeout(30)
open(sys.argv[3], "w").close()
kept = []
try:
    while True:
        c, _ = s.accept()
        if sys.argv[2] == "nonsense":
            c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
        kept.append(c)
except (TimeoutError, OSError):
    pass
END
	server=$!
	wait_for "[ -e '$tmp/ready' ]" 20
	refused "."
	kill $server
	wait $server 2>/dev/null || true
	rm "$tmp/ready"
done

# with the right one it mounts
expect 0 "$MKFS" -q -s 16M --join "$tmp/p/key" "$tmp/m"
arena=64M start_mirror m '' "$address"
arena=64M mount_primary p mnt "mirror=$address"
echo x >"$tmp/mnt/x"
unmount mnt

# a second mirror on the same port, and a mirror's volume that is in use
expect 1 timeout 60 "$KVFS" mirror -o "arena=64M,listen=$address" "$tmp/m-small"
one_line "$port"
expect 1 timeout 60 "$KVFS" mirror -o "arena=64M,listen=shm:$tmp/ring" "$tmp/m"
one_line "in use"
unmount m
