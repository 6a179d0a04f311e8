/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C by ISA-L: see crc32c.h. */
#include "common/crc32c.h"

#include <isa-l/crc.h>

/* ISA-L takes an int length, and neither inverts before nor after. */
#define CRC32C_STEP_BYTES (1U << 30)

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	unsigned char *p = (unsigned char *)(uintptr_t)data; /* ISA-L's prototype lacks const */

	crc = ~crc;
	while (len > 0) {
		size_t step = len < CRC32C_STEP_BYTES ? len : CRC32C_STEP_BYTES;

		crc = crc32_iscsi(p, (int)step, crc);
		p += step;
		len -= step;
	}
	return ~crc;
}
