# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
# Sourced by every shell test: a directory of its own in $tmp, removed at exit, and a few words.
# The tests run from `make check`, which sets top_builddir and top_srcdir, or by hand.
set -eu

top_srcdir=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
if [ -z "${top_builddir:-}" ]; then
	for top_builddir in "$PWD" "$PWD/.." "$top_srcdir" "$top_srcdir/build"; do
		[ -x "$top_builddir/mkfs/mkfs.kvfs" ] && break
	done
fi
MKFS=$top_builddir/mkfs/mkfs.kvfs
FSCK=$top_builddir/mkfs/fsck.kvfs
KVFS=$top_builddir/fs/kvfs
FILL=$top_builddir/tests/shell/volume_fill

tmp=$(mktemp -d "${TMPDIR:-/tmp}/kvfs-test-XXXXXX")
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

fail()
{
	echo "FAIL: $*" >&2
	exit 1
}

# The machine can't do this: automake counts 77 as skipped.
skip()
{
	echo "SKIP: $*" >&2
	exit 77
}

# wait_for CONDITION SECONDS: CONDITION is a command line.
wait_for()
{
	wait_for_tries=$(($2 * 20))
	until eval "$1"; do
		wait_for_tries=$((wait_for_tries - 1))
		[ "$wait_for_tries" -gt 0 ] || fail "after $2 s still not: $1"
		sleep 0.05
	done
}

# expect STATUS COMMAND...: its output is in $tmp/out and $tmp/err.
expect()
{
	expect_want=$1
	shift
	expect_got=0
	"$@" >"$tmp/out" 2>"$tmp/err" || expect_got=$?
	[ "$expect_got" -eq "$expect_want" ] ||
		fail "$* gave $expect_got, not $expect_want: $(cat "$tmp/out" "$tmp/err")"
}

# One line on standard error that holds the text.
one_line()
{
	[ "$(wc -l <"$tmp/err")" -eq 1 ] || fail "not one line: $(cat "$tmp/err")"
	grep -qF -- "$1" "$tmp/err" || fail "'$1' is not in: $(cat "$tmp/err")"
}

in_out()
{
	grep -qF -- "$1" "$tmp/out" || fail "'$1' is not in: $(cat "$tmp/out")"
}
