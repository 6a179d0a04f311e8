# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154,SC2034
# Sourced after mounts.sh by the tests of bad input: a request is refused
# with one line that names the thing, the cause and the remedy, and leaves no process, no mount and
# an unchanged volume.

# Which files a volume has and what is in them; after a wrong command line (2) the names do. The
# first 8 KiB of a log are libpmemlog's, which notes there on what it was opened last.
volume_sum() # STATUS VOLUME
{
	(cd "$2" && find . -printf '%p %y %s %i\n' | sort &&
		{ [ "$1" -eq 2 ] ||
			find . -type f ! -name 'log.?' -print0 | sort -z | xargs -0 -r sha256sum &&
			for log in log.0 log.1; do
				tail -c +8193 $log | sha256sum
			done; }) 2>/dev/null || :
}

# refuse STATUS TEXT ARGS...: kvfs ARGS is refused; several TEXTs are separated by |
refuse()
{
	refuse_code=$1
	refuse_texts=$2
	shift 2
	refuse_run "$refuse_code" "$refuse_texts" "$KVFS" "$@"
}

# refuse_run STATUS TEXT COMMAND...
refuse_run()
{
	refuse_code=$1
	refuse_texts=$2
	shift 2
	volume_sum "$refuse_code" "$tmp/v" >"$tmp/before"
	expect "$refuse_code" timeout 60 "$@"
	refuse_ifs=$IFS
	IFS='|'
	for refuse_text in $refuse_texts; do
		IFS=$refuse_ifs
		one_line "$refuse_text"
		IFS='|'
	done
	IFS=$refuse_ifs
	volume_sum "$refuse_code" "$tmp/v" >"$tmp/after"
	cmp -s "$tmp/before" "$tmp/after" ||
		fail "$* changed the volume: $(diff "$tmp/before" "$tmp/after")"
	nothing_left
}

nothing_left()
{
	! grep -qF " $tmp/" /proc/self/mountinfo ||
		fail "a mount is left: $(grep -F " $tmp/" /proc/self/mountinfo)"
	! pgrep -f -- "^$KVFS (mount|mirror) .*$tmp/" >/dev/null || fail "a process is left"
}
