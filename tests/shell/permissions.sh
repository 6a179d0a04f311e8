#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Who may do what on a mount that others may use: mode bits, sticky directories, set-group-ID
# directories, and bits that a write or a change of owner takes away. Root alone would see none of
# it.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

command -v setpriv >/dev/null || skip "no setpriv"
chmod 755 "$tmp"
make_volume v
mount_volume allow_other
cd "$tmp/m"
as() # UID:GID COMMAND...
{
	as_who=$1
	shift
	setpriv --reuid "${as_who%:*}" --regid "${as_who#*:}" --clear-groups "$@"
}
ann=2001:3001
bob=2002:3002
may_not() { # UID:GID COMMAND...
	if as "$@" 2>"$tmp/err"; then
		fail "$* was let through"
	fi
	grep -q 'Permission denied\|Operation not permitted' "$tmp/err" ||
		fail "$*: $(cat "$tmp/err")"
}
as $ann test -x . || skip "other users can't reach $tmp"

# mode bits
mkdir shared
chmod 777 shared
as $ann sh -c 'umask 077; echo secret >shared/private; umask 022; echo open >shared/public'
[ "$(stat -c %u:%g:%a shared/private shared/public | tr '\n' ' ')" = "$ann:600 $ann:644 " ] ||
	fail "owners and modes: $(stat -c %u:%g:%a shared/*)"
may_not $bob cat shared/private
as $bob cat shared/public >/dev/null || fail "a public key can't be read"
may_not $bob sh -c 'echo more >>shared/public'
may_not $bob truncate -s 0 shared/public
may_not $bob chmod 666 shared/public
may_not $bob chown 2002 shared/public
may_not $ann chown 2002 shared/public
as $ann mkdir -m 700 shared/own
may_not $bob ls shared/own
may_not $bob touch shared/own/key
mkdir -m 755 closed
may_not $ann touch closed/key

# a sticky directory: what is another's stays
mkdir -m 1777 sticky
as $ann touch sticky/hers
as $bob touch sticky/his
may_not $bob rm -f sticky/hers
may_not $bob mv sticky/hers sticky/taken
may_not $bob mv sticky/his sticky/hers
as $bob rm sticky/his
as $ann rm sticky/hers

# a set-group-ID directory hands its group on, to directories with the bit
mkdir group
chown 0:3009 group
chmod 2777 group
as $ann sh -c 'touch group/key && mkdir group/dir && touch group/dir/key'
[ "$(stat -c %g group/key group/dir group/dir/key | tr '\n' ' ')" = "3009 3009 3009 " ] ||
	fail "groups: $(stat -c %g group/key group/dir group/dir/key)"
[ -g group/dir ] || fail "the directory lost the bit"

# set-user-ID goes when another writes, and with the owner
as $ann sh -c 'echo x >shared/tool && chmod 4777 shared/tool'
[ -u shared/tool ] || fail "no set-user-ID bit to begin with"
as $bob sh -c 'echo y >>shared/tool'
[ ! -u shared/tool ] || fail "a write left the set-user-ID bit"
chmod 6755 shared/tool
chown 2002 shared/tool
[ ! -u shared/tool ] || fail "a change of owner left the set-user-ID bit"
[ ! -g shared/tool ] || fail "a change of owner left the set-group-ID bit"

cd /
"$KVFS" umount "$tmp/m"
