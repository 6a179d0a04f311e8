#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A volume and a mount point whose paths are not UTF-8: every JSON object names them, each odd byte
# as \xHH, and no command takes them for a lack of memory.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

odd=$(printf 'b\377')
v=$tmp/v$odd
m=$tmp/m$odd
mkdir "$m"

expect 0 "$MKFS" -n --json -s 32M "$v"
in_out "\"volume\": \"$tmp/vb\\\\xff\""
expect 0 "$MKFS" --json -s 32M "$v"
[ "$(jq -r .volume "$tmp/out")" = "$tmp/vb\\xff" ] || fail "mkfs: $(cat "$tmp/out")"
[ "$(jq -r .made "$tmp/out")" = true ] || fail "not made: $(cat "$tmp/out")"
expect 0 "$FSCK" --json "$v"
[ "$(jq -r .volume "$tmp/out")" = "$tmp/vb\\xff" ] || fail "fsck: $(cat "$tmp/out")"

expect 0 timeout 120 "$KVFS" mount -o arena=256M "$v" "$m"
echo 1 >"$m/k$odd"
expect 0 "$KVFS" status "$m"
in_out "vb\\xff"
expect 0 "$KVFS" status --json "$m"
[ "$(jq -r .volume.path "$tmp/out")" = "$tmp/vb\\xff" ] || fail "status: $(cat "$tmp/out")"
[ "$(jq -r .mountpoint "$tmp/out")" = "$tmp/mb\\xff" ] || fail "status: $(cat "$tmp/out")"
kill -0 "$(jq -r .pid "$tmp/out")" || fail "no pid: $(cat "$tmp/out")"

# a refusal that names the path
(cd "$m" && expect 1 "$KVFS" umount "$m" && one_line "is in use") || exit 1
one_line "mb\\xff"
expect 0 timeout 120 "$KVFS" umount "$m"
