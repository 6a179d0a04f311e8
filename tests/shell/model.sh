#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Random operations on a mount and on tmpfs, compared after each: without crashes, with a kill -9
# and remount now and then, and both with extended attributes. The log is small, so that checkpoints
# and switches of the log go on all the time.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

: >"$tmp/recoveries"
mkdir "$tmp/b"
mount -t tmpfs -o size=2G tmpfs "$tmp/b" 2>/dev/null || skip "mount is not permitted here"
arena=256M
one_mount 32M
# Run by the model: $1 is the mount's options.
cat >"$tmp/crash" <<END
#!/bin/sh
pid=\$('$KVFS' status --json '$mnt' | jq .pid) || exit 1
kill -9 "\$pid" || exit 1
$await_end "\$pid" 60 || exit 1 # the volume is locked until then
exec timeout 60 '$KVFS' mount -o "arena=$arena\$1" '$tmp/v' '$mnt' 2>>'$tmp/recoveries'
END
chmod +x "$tmp/crash"

run() # OPTIONS-OF-MOUNT THOUSANDS MODEL-ARGUMENTS...
{
	options=$1
	ops=$(portion $(($2 * 1000)))
	shift 2
	unmount mnt
	mount_primary v mnt "$options"
	mkdir "$mnt/tree" "$tmp/b/tree"
	"$MODEL" --a "$mnt/tree" --b "$tmp/b/tree" --ops "$ops" --seed "$seed" "$@" ||
		fail "the model differs: $(tail -n 3 "$tmp/recoveries");" \
			"KVFS_TEST_SEED=$seed replays it"
	checkpoints=$(status_of mnt .checkpoint.count)
	echo "$checkpoints checkpoints since the last mount," \
		"$(grep -c recovered: "$tmp/recoveries") recoveries in all"
	rm -rf "$mnt/tree" "$tmp/b/tree"
	seed=$((seed + 1))
}

run '' 100
[ "$checkpoints" -ge 3 ] || [ "$share" -lt 100 ] ||
	fail "only $checkpoints checkpoints: the log was not small enough"
run '' 70 --crash-every 3500 --crash-command "$tmp/crash ''"
run '' 4 --times-every 1
mkdir "$mnt/probe" "$tmp/b/probe"
set_xattr='import os, sys; os.setxattr(sys.argv[1], "user.a", b"b")'
if python3 -c "$set_xattr" "$tmp/b/probe" 2>/dev/null; then
	run xattr 20 --xattr
	run xattr 10 --xattr --crash-every 2000 --crash-command "$tmp/crash ,xattr"
else
	echo "tmpfs has no user attributes here: not compared"
	run xattr 30 --crash-every 6000 --crash-command "$tmp/crash ,xattr"
fi
unmount mnt
expect 0 "$FSCK" "$tmp/v"
