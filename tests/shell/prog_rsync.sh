#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rsync -a copies a tree; a second run copies nothing, also after a kill -9; a changed file alone is
# copied then.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need rsync
one_mount 64M
copied()
{
	rsync -a --delete --stats "$tmp/src/" "$mnt/dst/" >"$tmp/out" ||
		fail "rsync: $(cat "$tmp/out")"
	sed -n 's/^Number of regular files transferred: //p' "$tmp/out"
}

mkdir "$tmp/src"
cp -a "$top_srcdir/fs" "$top_srcdir/log" "$tmp/src/"
ln -s fs/cmd/main.c "$tmp/src/link"
[ "$(copied)" -eq "$(find "$tmp/src" -type f | wc -l)" ] || fail "the first copy: $(cat "$tmp/out")"
[ "$(copied)" -eq 0 ] || fail "the second run copied: $(cat "$tmp/out")"
crash_mount
[ "$(copied)" -eq 0 ] || fail "the run after the crash copied: $(cat "$tmp/out")"
echo more >>"$tmp/src/log/oplog.c"
rm "$tmp/src/log/record.c"
[ "$(copied)" -eq 1 ] || fail "one file changed: $(cat "$tmp/out")"
diff -r --no-dereference "$tmp/src" "$mnt/dst" || fail "the trees differ"
[ -z "$(rsync -aicn --delete "$tmp/src/" "$mnt/dst/")" ] || fail "rsync -c sees differences"
