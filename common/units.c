/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and numbers, read and written: see units.h. */
#include "common/units.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char unit_letters[] = "KMGTPE";

int units_parse_size(const char *text, uint64_t *ret_bytes)
{
	char *end;
	double value;
	int shift = 0;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtod(text, &end);
	if (errno || !isfinite(value) || strpbrk(text, "xXpP"))
		return -EINVAL;
	if (*end) {
		const char *letter = strchr(unit_letters, toupper((unsigned char)*end));

		if (letter) {
			shift = 10 * (int)(letter - unit_letters + 1);
			end++;
			if (strcasecmp(end, "iB") == 0)
				end += 2;
		}
		if (strcasecmp(end, "B") == 0)
			end++;
		if (*end)
			return -EINVAL;
	}
	value = ldexp(value, shift);
	if (value >= 0x1p63)
		return -ERANGE;
	*ret_bytes = (uint64_t)value;
	return 0;
}

int units_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	char *end;
	uint64_t value;

	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end)
		return -EINVAL;
	if (errno || value < min || value > max)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

char *units_format_size(uint64_t bytes, char out[UNITS_TEXT_BYTES])
{
	double value = (double)bytes;
	int unit = -1;

	while (value >= 1024.0 && unit < (int)strlen(unit_letters) - 1) {
		value /= 1024.0;
		unit++;
	}
	if (unit < 0)
		snprintf(out, UNITS_TEXT_BYTES, "%" PRIu64 " B", bytes);
	else
		snprintf(out, UNITS_TEXT_BYTES, "%.2f %ciB", value, unit_letters[unit]);
	return out;
}
