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
# What a sanitizer says of a daemon would go to its standard error, which is closed.
for kv_tool in ASAN UBSAN TSAN; do
	eval "kv_before=\${${kv_tool}_OPTIONS:-}"
	export "${kv_tool}_OPTIONS=${kv_before:+$kv_before:}log_path=$tmp/sanitizer"
done
LSAN_OPTIONS=suppressions=$top_srcdir/tests/lsan.supp:print_suppressions=0
export LSAN_OPTIONS

# end_test STATUS: how every trap at exit ends. Where a sanitizer has found something the test
# fails. With KVFS_TEST_KEEP=1 a test that fails leaves its directory.
end_test()
{
	end_test_status=$1
	if cat "$tmp"/sanitizer.* 2>/dev/null; then
		echo "FAIL: a sanitizer has found the above" >&2
		end_test_status=1
	fi
	case $end_test_status in
	0 | 77) rm -rf "$tmp" ;;
	*) [ -n "${KVFS_TEST_KEEP:-}" ] || rm -rf "$tmp" ;;
	esac
	exit "$end_test_status"
}
trap 'end_test $?' EXIT
trap 'exit 1' HUP INT TERM

fail()
{
	echo "FAIL: $*" >&2
	exit 1
}

# sanitized [address|thread]: the programs are built with that sanitizer (none named: with any).
sanitized()
{
	case ${1:-} in
	address) kv_symbol=__asan_init ;;
	thread) kv_symbol=__tsan_init ;;
	*) kv_symbol='__[at]san_init' ;;
	esac
	grep -q "$kv_symbol" "$KVFS"
}

# The machine can't do this: automake counts 77 as skipped.
skip()
{
	echo "SKIP: $*" >&2
	exit 77
}

# In $now: seconds since the machine's start, of a clock that nobody sets.
read_clock()
{
	read -r now kv_rest </proc/uptime
	now=${now%.*}
}

# wait_for CONDITION SECONDS: CONDITION is a command line. By the clock, since to ask may itself
# take time. The last look begins after the time is up. KVFS_TEST_PATIENCE times as long in slow
# builds.
wait_for()
{
	wait_for_seconds=$(($2 * ${KVFS_TEST_PATIENCE:-1}))
	read_clock
	wait_for_end=$((now + wait_for_seconds))
	until eval "$1"; do
		[ "$now" -le "$wait_for_end" ] ||
			fail "after $wait_for_seconds s still not: $1"
		sleep 0.05
		read_clock
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
