#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A user who is not root makes a volume, mounts it with fusermount3's help, loses it and gets it
# again; where that can't be, one line says why.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

command -v fusermount3 >/dev/null || skip "no fusermount3"
command -v setpriv >/dev/null || skip "no setpriv"
chmod 755 "$tmp"
# shellcheck disable=SC2119 # any
! sanitized || chmod 1777 "$tmp" # the daemon is the user's, and its sanitizer writes there
mkdir "$tmp/bin" "$tmp/home"
cp "$(readlink -f "$KVFS")" "$(readlink -f "$MKFS")" "$(readlink -f "$FSCK")" "$tmp/bin"
chown -R 65534:65534 "$tmp/home"
as_user()
{
	(cd "$tmp/home" &&
		exec setpriv --reuid 65534 --regid 65534 --clear-groups env -u TMPDIR "$@")
}
as_user test -r "$tmp/bin/kvfs" || skip "an ordinary user can't reach $tmp"
as_user test -w /dev/fuse || skip "an ordinary user may not use /dev/fuse"
user_kvfs() { as_user "$tmp/bin/kvfs" "$@"; }
# expect, with the messages of one line
user_refuse() # TEXT ARGS...
{
	user_text=$1
	shift
	expect 1 user_kvfs "$@"
	one_line "$user_text"
	! grep -qF " $tmp/" /proc/self/mountinfo || fail "a mount is left"
}

as_user "$tmp/bin/mkfs.kvfs" -q -s 16M v || fail "mkfs.kvfs as an ordinary user"
as_user mkdir m
user_kvfs mount -o arena=64M v m 2>"$tmp/err" || {
	grep -q "Operation not permitted\|not permitted" "$tmp/err" &&
		skip "no FUSE for ordinary users: $(cat "$tmp/err")"
	fail "mount: $(cat "$tmp/err")"
}
[ ! -s "$tmp/err" ] || fail "said: $(cat "$tmp/err")"
as_user sh -c 'echo value >m/key && cat m/key' | grep -q value || fail "the mount does not work"
[ "$(as_user stat -c %u m/key)" -eq 65534 ] || fail "the key is another's"
expect 0 user_kvfs status m
expect 0 user_kvfs checkpoint m
expect 1 user_kvfs mount -o arena=64M v m
one_line "in use"
expect 0 user_kvfs umount m
! grep -qF " $tmp/" /proc/self/mountinfo || fail "a mount is left"

# killed: the stale mount is taken away without root
user_kvfs mount -o arena=64M v m
kill_daemon home/v
expect 0 user_kvfs mount -o arena=64M v m
[ "$(as_user cat m/key)" = value ] || fail "the value is lost"
kill_daemon home/v
expect 0 user_kvfs umount m
! grep -qF " $tmp/" /proc/self/mountinfo || fail "the stale mount is left"
user_kvfs mount -o arena=64M v m
as_user fusermount3 -u m
wait_for "! pgrep -f -- '^$tmp/bin/kvfs' >/dev/null" 30

# what an ordinary user may not do
if ! grep -q '^user_allow_other' /etc/fuse.conf 2>/dev/null; then
	user_refuse "allow_other" mount -o arena=64M,allow_other v m
fi
mkdir "$tmp/roots"
user_refuse "$tmp/roots" mount -o arena=64M v "$tmp/roots"
make_volume rootv
user_refuse "ermission denied" mount -o arena=64M "$tmp/rootv" m
chmod 755 "$tmp/rootv"
user_refuse "ermission denied" mount -o arena=64M "$tmp/rootv" m
user_refuse "$tmp/rootv" status "$tmp/rootv"
expect 1 as_user "$tmp/bin/mkfs.kvfs" -s 16M "$tmp/roots/v"
one_line "$tmp/roots"
expect 0 as_user "$tmp/bin/fsck.kvfs" v

# a mirror and a view, as that user too
as_user "$tmp/bin/mkfs.kvfs" -q -s 16M --join v/key mirror
as_user mkdir view
user_kvfs mirror -o "arena=64M,listen=shm:$tmp/home/ring" mirror view ||
	fail "no mirror as an ordinary user"
user_kvfs mount -o "arena=64M,mirror=shm:$tmp/home/ring" v m || fail "no mount with a mirror"
as_user sh -c 'echo both >m/key2'
wait_for "[ \"\$(as_user cat view/key2)\" = both ]" 10
expect 0 user_kvfs umount m
expect 0 user_kvfs umount view
