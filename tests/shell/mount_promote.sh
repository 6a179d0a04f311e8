#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mirror's volume is not mounted by mistake; with -o promote it becomes the primary's, in a new
# epoch, and the other mirror follows it.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
make_volume s --join "$tmp/v/key"
make_volume t --join "$tmp/v/key"
start_mirror s '' "shm:$tmp/s.sock"
start_mirror t '' "shm:$tmp/t.sock"
mount_volume "mirror=shm:$tmp/s.sock,mirror=shm:$tmp/t.sock"
wait_for '[ "$("$KVFS" status "$tmp/m" | grep -c "live over")" -eq 2 ]' 20
echo one >"$tmp/m/key"
for where in "$tmp/s" "$tmp/t"; do
	wait_for '"$KVFS" status --json "$where" | grep -q "\"in_sync\": true"' 20
done
kill_daemon m
umount -l "$tmp/m" 2>/dev/null || :
"$KVFS" umount "$tmp/s"

"$KVFS" mount -o arena=256M "$tmp/s" "$tmp/m" 2>"$tmp/err" && fail "a mirror's volume was mounted"
grep -q promote "$tmp/err" || fail "no remedy: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "more than one line: $(cat "$tmp/err")"
"$KVFS" mirror -o "arena=256M,listen=shm:$tmp/x.sock" "$tmp/v" 2>"$tmp/err" &&
	fail "a primary's volume became a mirror"
grep -q -e --join "$tmp/err" || fail "no remedy: $(cat "$tmp/err")"

# one that knows it was never in sync is promoted only by force
make_volume u --join "$tmp/v/key"
"$KVFS" mount -o arena=256M,promote "$tmp/u" "$tmp/m" 2>"$tmp/err" &&
	fail "an empty mirror was promoted"
grep -q "not in sync.*promote,force" "$tmp/err" || fail "no remedy: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "more than one line: $(cat "$tmp/err")"
"$KVFS" mount -o arena=256M,promote,force "$tmp/u" "$tmp/m"
"$KVFS" umount "$tmp/m"

"$KVFS" mount -o "arena=256M,promote,mirror=shm:$tmp/t.sock" "$tmp/s" "$tmp/m"
[ "$(cat "$tmp/m/key")" = one ] || fail "the key is lost"
echo two >"$tmp/m/key"
for where in "$tmp/m" "$tmp/t"; do
	"$KVFS" status --json "$where" | grep -q '"epoch": 2' ||
		fail "$where: the epoch did not rise"
done
"$KVFS" umount "$tmp/m"
"$KVFS" mount -o "arena=256M,mirror=shm:$tmp/t.sock" "$tmp/s" "$tmp/m" # needs no promotion any more
[ "$(cat "$tmp/m/key")" = two ] || fail "the second value is lost"
"$KVFS" status "$tmp/m" | grep -q "epoch 2\.2," ||
	fail "a start did not raise the epoch: $("$KVFS" status "$tmp/m")"
"$KVFS" umount "$tmp/m"

# the old primary, however often it starts, and another that was promoted: the mirror that is left
# obeys neither
for old in v v u; do
	"$KVFS" mount -o "arena=256M,connect_timeout=5,mirror=shm:$tmp/t.sock" "$tmp/$old" \
		"$tmp/m" 2>"$tmp/err" &&
		fail "$old took the mirror away"
	grep -q -e "stale epoch 1\." -e "two nodes were promoted" "$tmp/err" ||
		fail "$old: $(cat "$tmp/err")"
done
