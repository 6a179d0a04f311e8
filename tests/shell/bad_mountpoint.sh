#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mount points that can't be used, paths of every shape, and the stale mount of a dead kvfs.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"
# shellcheck source=tests/shell/bad_functions.sh
. "$(dirname "$0")/bad_functions.sh"

make_volume v -s 16M
mkdir "$tmp/m" "$tmp/v2"
echo text >"$tmp/file"
refuse 1 "$tmp/none|does not exist|mkdir" mount "$tmp/v" "$tmp/none"
refuse 1 "$tmp/none/deeper|does not exist" mount "$tmp/v" "$tmp/none/deeper"
refuse 1 "$tmp/file|not a directory" mount "$tmp/v" "$tmp/file"
refuse 1 "$tmp/file" mount "$tmp/v" "$tmp/file/below"
refuse 2 "MOUNTPOINT is empty" mount "$tmp/v" ""
refuse 2 "MOUNTPOINT" mount "$tmp/v"
refuse 2 "too many" mount "$tmp/v" "$tmp/m" "$tmp/v2"
refuse 2 "hide the volume" mount "$tmp/v" "$tmp/v"
refuse 2 "hide the volume" mount "$tmp/v" "$tmp"
refuse 2 "in the volume" mount "$tmp/v" "$tmp/v/ckpt"
refuse 1 "/proc|in use" mount "$tmp/v" /proc
refuse 1 "no?such" mount "$tmp/v" "$tmp/no
such"
long=$(printf 'd%.0s' $(seq 5000))
refuse 1 "too long" mount "$tmp/v" "$tmp/$long"
refuse 1 "too long" mount "$tmp/$long" "$tmp/m"
ln -s loop "$tmp/loop"
refuse 1 "$tmp/loop" mount "$tmp/v" "$tmp/loop/x"

# each of these is a good path
served() # VOLUME MOUNTPOINT
{
	expect 0 "$KVFS" mount -o arena=64M "$1" "$2"
	[ ! -s "$tmp/err" ] || fail "said: $(cat "$tmp/err")"
	echo "$2" >"$2/key"
	[ "$(cat "$2/key")" = "$2" ] || fail "no value at $2"
	expect 0 "$KVFS" status "$2"
	expect 0 "$KVFS" status "$1"
	expect 0 "$KVFS" umount "$2"
	nothing_left
}
ln -s v "$tmp/vlink"
ln -s m "$tmp/mlink"
served "$tmp/v" "$tmp/m"
served "$tmp/v/" "$tmp/m/"
served "$tmp//v/.///" "$tmp/m/../m"
served "$tmp/vlink" "$tmp/mlink"
served "$tmp/vlink/" "$tmp/mlink/"
cd "$tmp"
served v m
served ./v ./m
cd "$tmp/m"
served ../v ../m
cd /
odd="odd, name\\with 'all' \"of\" it	é"
mv "$tmp/v" "$tmp/v $odd"
mkdir "$tmp/m $odd"
served "$tmp/v $odd" "$tmp/m $odd"
mv "$tmp/v $odd" "$tmp/v"
deep=$tmp
while [ ${#deep} -lt 3000 ]; do
	deep=$deep/$(printf 'e%.0s' $(seq 200))
	mkdir "$deep"
done
mkdir "$deep/m"
mv "$tmp/v" "$deep/v"
served "$deep/v" "$deep/m"
mv "$deep/v" "$tmp/v"

# dead ones are taken away, also two on top of each other, and by umount
mount_volume
kill_daemon m
mount_volume
[ "$(grep -c " $tmp/m " /proc/self/mountinfo)" -eq 1 ] || fail "the stale mount is still there"
kill_daemon m
expect 0 "$KVFS" umount "$tmp/m"
nothing_left
mount_volume
kill_daemon m
refuse_stale=$(grep -c " $tmp/m " /proc/self/mountinfo)
expect 1 "$KVFS" status "$tmp/m"
one_line "no kvfs is running"
[ "$(grep -c " $tmp/m " /proc/self/mountinfo)" -eq "$refuse_stale" ] ||
	fail "status took a mount away"
mount_volume
expect 0 "$KVFS" umount "$tmp/m"
# a living mount of something else is left alone
mount -t tmpfs tmpfs "$tmp/m"
expect 1 "$KVFS" mount "$tmp/v" "$tmp/m"
one_line "in use"
one_line "tmpfs"
umount "$tmp/m"
nothing_left
