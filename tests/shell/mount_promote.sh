#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mirror's volume is not mounted by mistake; with -o promote it becomes the primary's, in a new epoch, and the
# other mirror follows it.
. "$(dirname "$0")/functions.sh"
. "$(dirname "$0")/mount_functions.sh"

make_volume v
make_volume s --join "$tmp/v/key"
make_volume t --join "$tmp/v/key"
start_mirror s "listen=shm:$tmp/s.sock"
start_mirror t "listen=shm:$tmp/t.sock"
mount_volume "mirror=shm:$tmp/s.sock,mirror=shm:$tmp/t.sock"
wait_for '[ "$("$KVFS" status "$tmp/m" | grep -c "live over")" -eq 2 ]' 20
echo one >"$tmp/m/key"
kill_daemon "$tmp/m"
umount -l "$tmp/m" 2>/dev/null || :
"$KVFS" umount "$tmp/s"

"$KVFS" mount -o arena=256M "$tmp/s" "$tmp/m" 2>"$tmp/err" && fail "a mirror's volume was mounted"
grep -q promote "$tmp/err" || fail "no remedy: $(cat "$tmp/err")"
[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "more than one line: $(cat "$tmp/err")"
"$KVFS" mirror -o "arena=256M,listen=shm:$tmp/x.sock" "$tmp/v" 2>"$tmp/err" && fail "a primary's volume became a mirror"
grep -q -e --join "$tmp/err" || fail "no remedy: $(cat "$tmp/err")"

"$KVFS" mount -o "arena=256M,promote,mirror=shm:$tmp/t.sock" "$tmp/s" "$tmp/m"
[ "$(cat "$tmp/m/key")" = one ] || fail "the key is lost"
echo two >"$tmp/m/key"
for where in "$tmp/m" "$tmp/t"; do
	"$KVFS" status --json "$where" | grep -q '"epoch": 2' || fail "$where: the epoch did not rise"
done
"$KVFS" umount "$tmp/m"
"$KVFS" mount -o "arena=256M,mirror=shm:$tmp/t.sock" "$tmp/s" "$tmp/m" # needs no promotion any more
[ "$(cat "$tmp/m/key")" = two ] || fail "the second value is lost"
