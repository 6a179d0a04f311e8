#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A mount does what shell tools ask, and a remount finds it all.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

make_volume v
mount_volume
cd "$tmp/m"
echo one >a
mkdir -p d/e
echo two >>a
ln a hard
ln -s a soft
mv a d/e/b
truncate -s 100000 sparse
printf x | dd of=sparse bs=1 seek=99999 conv=notrunc 2>/dev/null
mkfifo fifo
chmod 640 hard
touch -d '2001-02-03 04:05:06.123456789' hard
touch -d '1960-01-01 00:00:00.5' fifo
[ "$(cat hard)" = "$(printf 'one\ntwo')" ] || fail "hard: $(cat hard)"
[ "$(stat -c %h hard)" -eq 2 ] || fail "links: $(stat -c %h hard)"
[ "$(readlink soft)" = a ] || fail "symlink"
[ -p fifo ] || fail "fifo"
[ "$(date -r fifo +%Y-%m-%d)" = 1960-01-01 ] || fail "a time before 1970: $(stat -c %y fifo)"
[ "$(stat -c %s sparse)" -eq 100000 ] || fail "sparse size"
(exec 9>open; rm open; echo still >&9) || fail "write after unlink"
cp -r d copy
cmp d/e/b copy/e/b
before=$(find . | sort | xargs -d '\n' stat -c '%n %F %a %h %s %y %i')
cd /
"$KVFS" umount "$tmp/m"
mount_volume
cd "$tmp/m"
after=$(find . | sort | xargs -d '\n' stat -c '%n %F %a %h %s %y %i')
[ "$before" = "$after" ] || fail "the remount differs: $before -- $after"
rm -r copy d sparse hard soft fifo
[ -z "$(ls -A)" ] || fail "left: $(ls -A)"
cd /
