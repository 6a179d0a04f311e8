#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --help and the man pages name the same options.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

# The long names and letters, one a line.
of_help()
{
	"$1" --help | grep -E '^ +-' | grep -oE -- '(^| )-(-[a-z-]+|[A-Za-z])\b' | tr -d ' ' |
		sort -u
}

of_man()
{
	grep -E '^\.It Fl' "$1" | sed 's/\\-/-/g' | grep -oE 'Fl [A-Za-z-]+' |
		sed -E 's/^Fl /-/' | sort -u
}

for name in mkfs fsck; do
	of_help "$top_builddir/mkfs/$name.kvfs" >"$tmp/help"
	of_man "$top_srcdir/mkfs/$name.kvfs.8" >"$tmp/man"
	[ -s "$tmp/help" ] || fail "no options in $name.kvfs --help"
	diff "$tmp/help" "$tmp/man" || fail "$name.kvfs: --help (<) and man page (>) differ"
done
