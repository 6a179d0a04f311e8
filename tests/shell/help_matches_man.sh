#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kvfs's --help and its man pages say the same: sub-commands, flags, and of each option its name,
# argument and default. The tables behind --help (fs/node/options_table.c, fs/cmd/main.c,
# fs/cmd/cmd_bench.c) are the source.
# shellcheck source=tests/shell/functions.sh
. "$(dirname "$0")/functions.sh"

same() # WHAT; compares $tmp/help and $tmp/man
{
	[ -s "$tmp/help" ] || fail "$1: nothing found in --help"
	LC_ALL=C sort -o "$tmp/help" "$tmp/help"
	LC_ALL=C sort -o "$tmp/man" "$tmp/man"
	diff "$tmp/help" "$tmp/man" || fail "$1: --help (<) and man page (>) differ"
}

# "name=ARG default", from lines "  name=ARG   text (default: …; …)", long names with their
# text below.
help_options()
{
	awk '
	/^Options, / { on = 1; next }
	!on { next }
	/^  [a-z]/ { if (name) print name " " text; name = $1; $1 = ""; text = $0; next }
	/^    / { sub(/^ +/, ""); text = text " " $0 }
	END { if (name) print name " " text }' |
		sed -E 's/^([^ ]+) .*\(default: ([^;)]*)[;)].*/\1 \2/; t; s/ .*//'
}

# The same from ".It Cm name Ns = Ns Ar ARG" and the line "Default: ….".
man_options()
{
	awk '
	/^\.Sh/ { on = /^\.Sh OPTIONS/ }
	!on { next }
	/^\.It Cm / || /^\.El/ { if (name) print name (text ? " " text : ""); name = ""; text = "" }
	/^\.It Cm / { name = $3 ($4 == "Ns" ? "=" $8 : "") }
	/^Default: / { text = substr($0, 10); sub(/\.$/, "", text) }' "$1" |
		sed 's/ Ns = Ns Ar / /'
}

# "-f", "-h --help": the flags themselves.
help_flags()
{
	sed -nE 's/^  (-[a-z](, --[a-z-]+)?) .*/\1/p' | tr -d ','
}
man_flags()
{
	sed -nE '/^\.Sh DESCRIPTION/,/^\.Sh OPTIONS/s/^\.It Fl //p' "$1" |
		sed -E 's/ , Fl / -/; s/\\-/-/g; s/^/-/'
}

for command in mount mirror; do
	"$KVFS" $command --help >"$tmp/text"
	page=$top_srcdir/fs/kvfs-$command.8
	help_options <"$tmp/text" >"$tmp/help"
	man_options "$page" >"$tmp/man"
	same "options of kvfs $command"
	help_flags <"$tmp/text" >"$tmp/help"
	man_flags "$page" >"$tmp/man"
	same "flags of kvfs $command"
done

# Bench: "--name ARG default" from "  --name ARG   text (default)" or "   default: …", and the
# loads.
"$KVFS" bench --help >"$tmp/text"
sed -nE '/^Loads:/q; s/^  (--?[a-z-]+( [A-Z]+)?)  +/\1|/p' "$tmp/text" |
	sed -E 's/\|.*\(([^)]*)\)$/ \1/; s/\|.*//' >"$tmp/help"
awk '
/^\.Ss/ { on = /^\.Ss BENCH/ }
/^\.Sh/ { on = 0 }
!on { next }
/^\.It Fl / || /^\.El/ { if (name) print name (text ? " " text : ""); name = ""; text = "" }
/^\.It Fl / { name = "-" $3 ($4 == "Ar" ? " " $5 : ""); gsub(/\\-/, "-", name) }
/^Default: / { text = substr($0, 10); sub(/\.$/, "", text) }' "$top_srcdir/fs/kvfs.1" >"$tmp/man"
same "options of kvfs bench"
sed -nE '1,/^Loads:/d; s/^  ([a-z]+) .*/\1/p' "$tmp/text" >"$tmp/help"
sed -nE '/^\.Ss BENCH/,/^\.Sh/s/^\.It Cm //p' "$top_srcdir/fs/kvfs.1" >"$tmp/man"
same "loads of kvfs bench"

# Flags of kvfs tune.
"$KVFS" tune --help | sed -nE 's/^  (--[a-z]+) .*/\1/p' >"$tmp/help"
sed -nE '/^\.Ss TUNE/,/^\.Ss BENCH/s/^\.It Fl \\(-[a-z]+).*/-\1/p' "$top_srcdir/fs/kvfs.1" \
	>"$tmp/man"
same "flags of kvfs tune"

# Sub-commands with their synopsis.
"$KVFS" --help >"$tmp/text"
sed -nE 's/^  kvfs ([^ ].*[^ ])  +[^ ].*/\1/p' "$tmp/text" | sed 's/ *$//' >"$tmp/help"
awk '
/^\.Ss/ { exit }
/^\.It Cm / {
	line = ""
	for (i = 2; i <= NF; i++) {
		if ($i == "Oo") { open = "["; continue }
		if ($i == "Oc") { line = line "]"; continue }
		if ($i == "Fl" || $i == "Ar" || $i == "Cm") {
			dash = $i == "Fl" ? "-" : ""
			continue
		}
		line = line (line ? " " : "") open dash $i
		open = dash = ""
	}
	gsub(/\\-/, "-", line)
	print line
}' "$top_srcdir/fs/kvfs.1" | sed 's/\[\.\.\.\]/[...]/' >"$tmp/man"
same "sub-commands of kvfs"

# What a sub-command says of itself is what kvfs --help says of it.
for command in umount status top checkpoint doctor; do
	"$KVFS" $command --help | sed -n '1s/^usage: kvfs //p' >"$tmp/help"
	grep "^$command " "$tmp/man" >"$tmp/one" || fail "$command is not in kvfs --help"
	diff "$tmp/help" "$tmp/one" || fail "kvfs $command --help (<) and kvfs --help (>) differ"
done
