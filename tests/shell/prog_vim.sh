#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vim edits a file: swap file, backup, rename and mode are as on any filesystem.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

vim=$(command -v vim || command -v vim.tiny) || skip "no vim"
one_mount 64M
seq 1000 >"$mnt/text"
chmod 640 "$mnt/text"
"$vim" -u NONE -N -es -c 'set backup writebackup backupskip= swapfile' -c '%s/^5/five/' -c 'w' \
	-c '1000d' -c 'x' "$mnt/text" ||
	fail "vim gave $?"
[ "$(grep -c '^five' "$mnt/text")" -eq 111 ] || fail "the edit is not there"
[ "$(wc -l <"$mnt/text")" -eq 999 ] || fail "the last line is not gone"
[ "$(stat -c %a "$mnt/text")" = 640 ] || fail "the mode changed"
[ -f "$mnt/text~" ] || fail "no backup"
[ -z "$(find "$mnt" -name '*.sw?')" ] || fail "a swap file is left"
