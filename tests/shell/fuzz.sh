#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every decoder of bytes from media or wire is fuzzed from its corpus, KVFS_FUZZ_SECONDS each, or
# until nothing new was reached for 30 s. With KVFS_FUZZ_KEEP=DIR new inputs are kept there.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

command -v clang >/dev/null || skip "no clang"
echo 'int LLVMFuzzerTestOneInput(const char *p, unsigned long n) { return 0; }' >"$tmp/try.c"
clang -fsanitize=fuzzer,address "$tmp/try.c" -o "$tmp/try" 2>/dev/null ||
	skip "this clang has no libFuzzer"
"$top_srcdir/tests/fuzz/run" --seconds "${KVFS_FUZZ_SECONDS:-20}" --slice 30 --work "$tmp/fuzz" \
	>"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
cat "$tmp/out"
[ "$(grep -c executions "$tmp/out")" -eq \
	"$(find "$top_srcdir/tests/fuzz" -name 'fuzz_*.c' | wc -l)" ] ||
	fail "not every target ran: $(cat "$tmp/out")"
