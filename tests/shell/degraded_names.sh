#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A change that failed for lack of mirrors may be there all the same: then the kernel must not go on
# believing its own cached names.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
make_volume s --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
mount_volume "mirror=shm:$tmp/s.sock,timeout=5"
live='[ "$("$KVFS" status "$tmp/m" | grep -c "live over")" -eq 1 ]'
wait_for "$live" 20
mkdir "$tmp/m/a" "$tmp/m/b" "$tmp/m/c"
echo old >"$tmp/m/b/old"
echo from >"$tmp/m/c/from"
[ ! -e "$tmp/m/a/new" ] || fail "new is there already" # the kernel now knows that it is not
kill_daemon s

mkdir "$tmp/m/a/new" 2>/dev/null &
made=$!
rm "$tmp/m/b/old" 2>/dev/null &
removed=$!
mv "$tmp/m/c/from" "$tmp/m/c/to" 2>/dev/null &
renamed=$!
! wait "$made" || fail "a key was made without a mirror"
! wait "$removed" || fail "a key was removed without a mirror"
! wait "$renamed" || fail "a key was renamed without a mirror"
start_mirror s '' "shm:$tmp/s.sock"
wait_for "$live" 20

same() # NAME: listed if and only if it can be looked up
{
	if ls "$tmp/m/${1%/*}" | grep -qx "${1#*/}"; then
		[ -e "$tmp/m/$1" ]
	else
		[ ! -e "$tmp/m/$1" ]
	fi
}
for name in a/new b/old c/from c/to; do
	wait_for "same $name" 5
done
