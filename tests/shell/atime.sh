#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Access times move as relatime says: of a file that is read, a directory that is listed, a symbolic
# link that is followed; they survive a remount; noatime, nodiratime and O_NOATIME keep them still.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

stamp() # FORMAT NAME: of the object itself
{
	stat -c "%$1" "$tmp/m/$2"
}
use() # NAME
{
	case $1 in
	dir) ls "$tmp/m/dir" >"$tmp/used" ;;
	soft) readlink "$tmp/m/soft" >"$tmp/used" ;;
	file) cat "$tmp/m/file" >"$tmp/used" ;;
	esac
	[ -s "$tmp/used" ] || fail "nothing came of $1"
}
# The atime of $1 as it is kept: moves by the next use that reaches kvfs, once, and ctime never.
moves_once()
{
	ctime=$(stamp z "$1")
	use "$1"
	kept=$(stamp x "$1")
	[ "$kept" != "$2" ] || fail "$1: the atime did not move from $2 ($3)"
	use "$1"
	[ "$(stamp x "$1")" = "$kept" ] || fail "$1: the atime moved again ($3)"
	[ "$(stamp z "$1")" = "$ctime" ] || fail "$1: the ctime moved ($3)"
}
# $2 said to be the atime: a use leaves it.
stays()
{
	use "$1"
	[ "$(stamp x "$1")" = "$2" ] || fail "$1: the atime moved from $2 ($3)"
}
again() # OPTIONS: a new mount, which has nothing in the kernel's caches
{
	unmount m
	mount_volume "${1:-}"
}

make_volume v
mount_volume
mkdir "$tmp/m/dir"
echo x >"$tmp/m/dir/name"
ln -s dir "$tmp/m/soft"
echo y >"$tmp/m/file"
for it in dir soft file; do
	moves_once $it "$(stamp x $it)" "new"
	eval "last_$it=\$kept"
done
# newer than what was changed, so not due; a remount finds what there was
again
for it in dir soft file; do
	eval "last=\$last_$it"
	[ "$(stamp x $it)" = "$last" ] || fail "$it: a remount finds another atime"
	stays $it "$last" "newer than ctime and mtime"
done
# a change makes it due again
touch "$tmp/m/dir/other"
moves_once dir "$last_dir" "changed"
[ "$(stamp x dir)" != "$(stamp y dir)" ] || fail "the atime is the mtime"
# so does a day
for it in dir soft file; do
	touch -h -a -d '2001-02-03 04:05:06' "$tmp/m/$it"
done
for options in noatime nodiratime ''; do
	again "$options"
	old=$(stamp x dir)
	case $options in
	noatime)
		for it in dir soft file; do
			stays $it "$old" noatime
		done
		;;
	nodiratime) stays dir "$old" nodiratime ;;
	*)
		"${PYTHON:-python3}" - "$tmp/m/file" <<'END' || fail "O_NOATIME"
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_NOATIME)
before = os.fstat(fd).st_atime_ns
assert os.read(fd, 10) == b"y\n"
assert os.fstat(fd).st_atime_ns == before
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
END
		for it in dir soft file; do
			moves_once $it "$old" "a day old"
		done
		;;
	esac
done
