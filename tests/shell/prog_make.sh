#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A C program is built by make on the mount; nothing is built twice, and what changed is.
# shellcheck source=tests/shell/mounts.sh
. "$(dirname "$0")/mounts.sh"

need make
cc=$(command -v cc || command -v gcc || command -v clang) || skip "no C compiler"
one_mount 64M
mkdir "$mnt/src"
cd "$mnt/src" || exit 1
for n in 1 2 3 4 5 6 7 8; do
	printf '#include "all.h"\nint f%d(int x)\n{\n\treturn x + %d;\n}\n' $n $n >f$n.c
	echo "int f$n(int x);" >>all.h
done
cat >main.c <<'END'
#include <stdio.h>
#include "all.h"
int main(void)
{
	printf("%d\n", f1(f2(f3(f4(f5(f6(f7(f8(0)))))))));
	return 0;
}
END
cat >Makefile <<END
CC = $cc
OBJS = main.o f1.o f2.o f3.o f4.o f5.o f6.o f7.o f8.o
prog: libf.a main.o
	\$(CC) -o \$@ main.o libf.a
libf.a: \$(OBJS)
	ar rcs \$@ \$(OBJS)
\$(OBJS): all.h
END
make -j2 >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
[ "$(./prog)" = 36 ] || fail "the program says $(./prog)"
make -q || fail "make would build again"
cd /
crash_mount
cd "$mnt/src" || exit 1
make -q || fail "make would build again after the crash"
[ "$(./prog)" = 36 ] || fail "the program says $(./prog) after the crash"
sed -i 's/x + 8/x + 108/' f8.c
make >"$tmp/out" 2>&1 || fail "$(cat "$tmp/out")"
[ "$(./prog)" = 136 ] || fail "the changed program says $(./prog)"
[ "$(grep -c -- '-c -o' "$tmp/out")" -eq 1 ] || fail "not one file was compiled: $(cat "$tmp/out")"
