/* SPDX-License-Identifier: Apache-2.0 */
/* See json_text.h. */
#include "common/json_text.h"

#include "common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ESCAPE_BYTES 4 /* of \xHH */

json_t *json_text(const char *text)
{
	const unsigned char *in = (const unsigned char *)text;
	size_t left = strlen(text), at = 0, n;
	char *out = malloc(left * ESCAPE_BYTES + 1);
	json_t *j;

	if (!out)
		return NULL;
	for (; left > 0; in += n, left -= n) {
		n = utf8_sequence_bytes(in, left);
		if (n > 0) {
			memcpy(out + at, in, n);
			at += n;
			continue;
		}
		n = 1;
		at += (size_t)snprintf(out + at, ESCAPE_BYTES + 1, "\\x%02x", *in);
	}
	j = json_stringn(out, at);
	free(out);
	return j;
}
