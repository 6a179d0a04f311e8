#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An ordinary block device is refused by every command with one clear line, with -f, too, and is not
# written; so are devices that can't be a log.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"
PATH=$PATH:/sbin:/usr/sbin

[ "$(id -u)" -eq 0 ] || skip "loop devices need root"
command -v losetup >/dev/null || skip "no losetup"
truncate -s 64M "$tmp/image"
if command -v mke2fs >/dev/null; then
	mke2fs -q -F -t ext4 "$tmp/image" >/dev/null 2>&1
fi
loop=$(losetup -f --show "$tmp/image" 2>/dev/null) || skip "no loop device"
trap 'losetup -d "$loop"; rm -rf "$tmp"' EXIT
sum=$(sha256sum <"$tmp/image")

for force in '' -f; do
	expect 1 "$MKFS" $force "$loop"
	one_line "an ordinary block device"
	one_line "not persistent memory"
	! command -v mke2fs >/dev/null || one_line "it holds: ext4"
done
mkdir "$tmp/mnt"
expect 1 "$KVFS" mount "$loop" "$tmp/mnt"
one_line "an ordinary block device, not persistent memory"
expect 1 "$KVFS" mirror -o listen=tcp:127.0.0.1:1 "$loop"
one_line "an ordinary block device, not persistent memory"
expect 8 "$FSCK" "$loop"
one_line "an ordinary block device, not persistent memory"
expect 1 "$KVFS" status "$loop"
one_line "$loop"
[ "$(sha256sum <"$tmp/image")" = "$sum" ] || fail "the device was written"

# A character device is no volume; what is given for a log has to be a device-DAX, twice, and
# different.
expect 1 "$MKFS" /dev/null
one_line "--log-device"
expect 2 "$MKFS" --log-device /dev/null "$tmp/v"
one_line "twice"
expect 2 "$MKFS" --log-device /dev/dax0.0 --log-device /dev/dax1.0 -s 64M "$tmp/v"
one_line "used whole"
expect 1 "$MKFS" --log-device /dev/null --log-device "$loop" "$tmp/v"
one_line "not a device-DAX"
[ ! -e "$tmp/v" ] || fail "a volume was begun"

# A log that is a link to anything else is no log.
expect 0 "$MKFS" -q -s 16M --key-copy "$tmp/key" "$tmp/v"
cmp "$tmp/key" "$tmp/v/key" || fail "the copy is not the key"
[ "$(stat -c %a "$tmp/key")" = 600 ] || fail "others can read the copy"
expect 1 "$MKFS" -q -s 16M --key-copy "$tmp/key" "$tmp/w"
one_line "exists"
mv "$tmp/v/log.0" "$tmp/elsewhere"
ln -s "$tmp/elsewhere" "$tmp/v/log.0"
expect 4 "$FSCK" "$tmp/v"
grep -q "not a log pool" "$tmp/out" "$tmp/err" || fail "$(cat "$tmp/out" "$tmp/err")"
