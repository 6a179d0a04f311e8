/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to stderr and the journal: see diag.h. */
#include "common/diag.h"

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <syslog.h>

static const char *diag_program = "kvfs";
static _Atomic enum diag_level diag_threshold = DIAG_INFO;
static _Atomic bool diag_syslog;

void diag_init(const char *program)
{
	diag_program = program;
}

void diag_set_level(enum diag_level level)
{
	atomic_store_explicit(&diag_threshold, level, memory_order_relaxed);
}

void diag_to_syslog(bool on)
{
	if (on)
		openlog(diag_program, LOG_PID | LOG_CONS, LOG_DAEMON);
	atomic_store_explicit(&diag_syslog, on, memory_order_relaxed);
}

/* A name in a message may hold any byte: one message stays one line, and no terminal is
 * driven by it. */
static void diag_make_printable(char *text)
{
	for (; *text; text++) {
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
	}
}

__attribute__((format(printf, 2, 0)))
static void diag_emit(enum diag_level level, const char *fmt, va_list ap)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
	char text[PATH_MAX + 1024];

	if (level > atomic_load_explicit(&diag_threshold, memory_order_relaxed))
		return;
	vsnprintf(text, sizeof(text), fmt, ap);
	diag_make_printable(text);
	fprintf(stderr, "%s: %s%s\n", diag_program, level == DIAG_WARN ? "warning: " : "", text);
	if (atomic_load_explicit(&diag_syslog, memory_order_relaxed))
		syslog(priorities[level], "%s", text);
}

#define DIAG_DEFINE(name, level)                                                                   \
	void diag_##name(const char *fmt, ...)                                                     \
	{                                                                                          \
		va_list ap;                                                                        \
		va_start(ap, fmt);                                                                 \
		diag_emit(level, fmt, ap);                                                         \
		va_end(ap);                                                                        \
	}

DIAG_DEFINE(error, DIAG_ERROR)
DIAG_DEFINE(warn, DIAG_WARN)
DIAG_DEFINE(info, DIAG_INFO)
DIAG_DEFINE(debug, DIAG_DEBUG)
