#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --json prints one object with each finding's place and the exit status.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

command -v python3 >/dev/null || skip "no python3 to read JSON"
expect 0 "$MKFS" -q -s 16M "$tmp/v"
printf 'garbage' | dd of="$tmp/v/superblock" bs=1 seek=50 conv=notrunc 2>/dev/null
expect 4 "$FSCK" --json "$tmp/v"
python3 - "$tmp/out" <<'END' || fail "$(cat "$tmp/out")"
import json, sys
j = json.load(open(sys.argv[1]))
f = j["findings"][0]
assert j["exit_status"] == 4 and j["uncorrected"] == 1
assert f["file"] == "superblock" and f["offset"] == 0 and f["repairable"] and not f["repaired"]
END
expect 1 "$FSCK" --json -y "$tmp/v"
in_out '"repaired": true'
