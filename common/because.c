/* SPDX-License-Identifier: Apache-2.0 */
/* The sentence of each thread: see because.h. */
#include "common/because.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BECAUSE_BYTES (PATH_MAX + 512) /* a sentence with a path */

int because(int err, const char **ret_why, const char *fmt, ...)
{
	static __thread char sentence[BECAUSE_BYTES];
	char text[BECAUSE_BYTES];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(sentence, text, strlen(text) + 1);
	*ret_why = sentence;
	return err;
}
