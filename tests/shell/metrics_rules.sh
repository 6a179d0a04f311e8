#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each alert rule that is shipped stays quiet when it should, and fires when it should (promtool
# test rules).
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"
command -v promtool >/dev/null || skip "promtool (package prometheus) is missing"

rules=$top_srcdir/scripts/prometheus/kvfs.rules.yml
expect 0 promtool check rules "$rules"
cp "$rules" "$top_srcdir/tests/prometheus/kvfs.rules.test.yml" "$tmp"
expect 0 promtool test rules "$tmp/kvfs.rules.test.yml"
# No alert without its test.
sed -n 's/.* alert: //p' "$rules" | sort >"$tmp/alerts"
sed -n 's/^ *alertname: //p' "$tmp/kvfs.rules.test.yml" | sort -u >"$tmp/tested"
[ -s "$tmp/alerts" ] && diff "$tmp/alerts" "$tmp/tested" ||
	fail "alerts (<) and those tested (>) differ"
