#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The log's medium refuses a store (here its file was cut off from under the mount): writes fail,
# the daemon lives and serves what it has, and says so in status.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
mount_volume
echo kept >"$tmp/m/key"
truncate -s 2M "$tmp/v/log.0" "$tmp/v/log.1"
pid=$(pid_of m)
head -c 4000000 /dev/urandom >"$tmp/value"
! cp "$tmp/value" "$tmp/m/big" 2>"$tmp/err" || fail "a write was acknowledged that no log has"
[ "$(pid_of m)" = "$pid" ] || fail "the daemon is gone"
[ "$(cat "$tmp/m/key")" = kept ] || fail "the key is not served any more"
! (echo more >"$tmp/m/more") 2>/dev/null || fail "a later write was acknowledged"
"$KVFS" status "$tmp/m" | grep -q "FAILED: no write is accepted" || fail "status does not tell it"
"$KVFS" umount "$tmp/m" 2>"$tmp/err" || grep -q 'the last checkpoint failed' "$tmp/err" ||
	fail "umount says: $(cat "$tmp/err")"
