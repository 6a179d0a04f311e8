#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mkfs killed at each durability point leaves nothing that passes for a volume.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

command -v strace >/dev/null || skip "no strace to stop it at a system call"
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # it does not work under strace
export ASAN_OPTIONS
strace -o /dev/null true 2>/dev/null || skip "strace is not permitted here"

n=0
ready=0
for call in fsync fdatasync fallocate msync rename renameat mkdirat; do
	for when in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		rm -rf "$tmp/v"
		got=0
		strace -f -o /dev/null -e "inject=$call:signal=KILL:when=$when" \
			"$MKFS" -q -s 16M "$tmp/v" 2>/dev/null || got=$?
		[ "$got" -ne 0 ] || break
		n=$((n + 1))
		[ -d "$tmp/v" ] || continue
		status=0
		"$FSCK" "$tmp/v" >"$tmp/out" 2>"$tmp/err" || status=$?
		case $status in
		0) ready=$((ready + 1)) ;; # killed after the last write: whole
		1 | 4 | 8) grep -Eq "incomplete|no superblock|older state" "$tmp/out" "$tmp/err" ||
			fail "$call $when: $(cat "$tmp/out" "$tmp/err")" ;;
		*) fail "$call $when: fsck gave $status" ;;
		esac
		[ "$status" -eq 0 ] || grep -q "older state" "$tmp/out" ||
			expect 0 "$MKFS" -q -s 16M "$tmp/v"
	done
done
[ "$n" -ge 5 ] || fail "only $n stops"
echo "$n stops, $ready of them after the end"
