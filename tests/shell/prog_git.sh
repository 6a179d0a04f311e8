#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# git clones into the mount, commits, and finds its repository whole, also after a kill -9 and a
# remount.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need git
one_mount 64M
export HOME="$tmp" GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost
git init -q -b main "$tmp/src"
mkdir "$tmp/src/log" "$tmp/src/fs"
cp "$top_srcdir"/log/*.[ch] "$tmp/src/log/"
cp -r "$top_srcdir"/fs/store "$tmp/src/fs/"
git -C "$tmp/src" add .
git -C "$tmp/src" commit -q -m first
git clone -q "$tmp/src" "$mnt/repo"
cd "$mnt/repo" || exit 1
for n in 1 2 3 4 5; do
	echo "line $n" >>log/notes
	git mv "fs/store/value.c" fs/moved.c
	git add -A
	git commit -q -m "change $n"
	git mv fs/moved.c fs/store/value.c
	git commit -q -m "back $n"
done
git checkout -q -b side HEAD~3
git gc -q
git fsck --full --strict >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
[ -z "$(git status --porcelain)" ] || fail "$(git status --porcelain)"
head=$(git rev-parse HEAD)
cd /
crash_mount
git -C "$mnt/repo" fsck --full --strict >"$tmp/out" 2>&1 ||
	fail "after the crash: $(cat "$tmp/out")"
[ "$(git -C "$mnt/repo" rev-parse HEAD)" = "$head" ] || fail "HEAD is another one"
[ -z "$(git -C "$mnt/repo" status --porcelain)" ] || fail "$(git -C "$mnt/repo" status --porcelain)"
