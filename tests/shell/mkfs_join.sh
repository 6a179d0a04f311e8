#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A joined volume has UUID and key of the other, and a node id of its own.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

field()
{
	python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$1" "$2"
}

command -v python3 >/dev/null || skip "no python3 to read JSON"
expect 0 "$MKFS" --json -s 16M "$tmp/one"
cp "$tmp/out" "$tmp/one.json"
expect 0 "$MKFS" --json -s 16M --join "$tmp/one/key" "$tmp/two"
[ ! -s "$tmp/err" ] || fail "a warning about a private key file: $(cat "$tmp/err")"
[ "$(field "$tmp/one.json" uuid)" = "$(field "$tmp/out" uuid)" ] || fail "another UUID"
[ "$(field "$tmp/one.json" node_id)" != "$(field "$tmp/out" node_id)" ] || fail "the same node id"
cmp "$tmp/one/key" "$tmp/two/key" || fail "another key"
expect 0 "$FSCK" "$tmp/two"
