/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_UTF8_H
#define KVFS_COMMON_UTF8_H
/* UTF-8 as RFC 3629 has it: the shortest form, no surrogates, up to U+10FFFF. Pure. */
#include <stddef.h>

/* Bytes of the sequence at p (1 to 4) of [p, p+len), len > 0; 0: there is none. */
static inline size_t utf8_sequence_bytes(const unsigned char *p, size_t len)
{
	size_t want = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 :
		      p[0] < 0xf5 ? 4 : 0;

	if (want == 0 || want > len)
		return 0;
	for (size_t i = 1; i < want; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
	    (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
		return 0;
	return want;
}

#endif
