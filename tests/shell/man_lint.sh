#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man pages are mdoc without warnings.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

command -v mandoc >/dev/null || skip "mandoc is missing"
for page in "$top_srcdir"/fs/*.[1-8] "$top_srcdir"/mkfs/*.[1-8]; do
	mandoc -Tlint -W warning "$page" >"$tmp/lint" || fail "$(cat "$tmp/lint")"
done
