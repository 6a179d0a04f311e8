#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the system denies is called by its name: a file size limit is no full disk, an immutable log
# no bad one.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

expect 1 sh -c "ulimit -f 1000 && exec '$MKFS' -q -s 16M '$tmp/n'"
one_line "File too large; raise ulimit -f"
[ ! -e "$tmp/n" ] || fail "mkfs.kvfs left something"

make_volume v -s 16M
mkdir "$tmp/m"
if chattr +i "$tmp/v/log.0" 2>/dev/null; then
	code=0
	"$KVFS" mount -o arena=64M "$tmp/v" "$tmp/m" 2>"$tmp/err" || code=$?
	chattr -i "$tmp/v/log.0"
	[ "$code" -eq 1 ] || fail "mounted, or another failure: $code"
	one_line "cannot open its log (log.0, log.1): Operation not permitted"
else
	echo "no immutable files here: not tested"
fi
