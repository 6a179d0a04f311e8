#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The summary says whether the place is persistent memory, a file or memory.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

type=$(stat -f -c %T "$tmp")
expect 0 "$MKFS" -s 16M "$tmp/v"
case $type in
tmpfs) in_out "memory only" ;;
*) grep -Eq "ordinary file|real persistent memory" "$tmp/out" || fail "$(cat "$tmp/out")" ;;
esac
if [ "$(stat -f -c %T /dev/shm)" = tmpfs ] && shm=$(mktemp -d /dev/shm/kvfs-test-XXXXXX); then
	trap 'rm -rf "$tmp" "$shm"' EXIT
	expect 0 "$MKFS" -s 16M "$shm/v"
	in_out "memory only, not persistent"
fi
