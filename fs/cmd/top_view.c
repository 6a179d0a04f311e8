/* SPDX-License-Identifier: Apache-2.0 */
/* A frame of kvfs top as text: see top.h. Lines that a terminal has no row for are left out. */
#include "fs/cmd/top.h"

#include "common/units.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define TOP_BAR 32

#define TOP_LINE_BYTES 1024

struct top_out {
	FILE *out;
	struct top_screen screen; /* rows: still free; UINT_MAX: no end */
	bool terminal;
};

/* Bytes of the first n characters of UTF-8 text, or of all. */
static int top_cut(const char *text, unsigned n)
{
	int i = 0;

	for (; text[i]; i++)
		if (((unsigned char)text[i] & 0xC0) != 0x80 && n-- == 0)
			break;
	return i;
}

__attribute__((format(printf, 2, 3))) static void top_line(struct top_out *o, const char *fmt, ...)
{
	char line[TOP_LINE_BYTES];
	va_list ap;

	if (o->screen.rows == 0)
		return;
	if (o->screen.rows != UINT_MAX)
		o->screen.rows--;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(o->out, "%.*s", top_cut(line, o->screen.columns), line);
	fputs(o->terminal ? "\033[K\n" : "\n",
	      o->out); /* clears what the last frame left behind it */
}

static double num(const json_t *j, const char *key)
{
	return json_number_value(json_object_get(j, key));
}

static const char *text(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

static const char *size(double bytes, char out[UNITS_TEXT_BYTES])
{
	return units_format_size(bytes > 0 ? (uint64_t)bytes : 0, out);
}

/* "[#####     ]" of a share 0 to 1. */
static const char *bar(double share, char out[TOP_BAR + 3])
{
	unsigned full = share >= 1 ? TOP_BAR : share > 0 ? (unsigned)(share * TOP_BAR) : 0;

	out[0] = '[';
	memset(out + 1, '#', full);
	memset(out + 1 + full, ' ', TOP_BAR - full);
	out[TOP_BAR + 1] = ']';
	out[TOP_BAR + 2] = '\0';
	return out;
}

static void top_print_latency(struct top_out *o, const char *name, const json_t *j)
{
	top_line(o, "  %-16s %10.0f %11.1f %11.1f %11.1f", name, num(j, "per_second"),
		 num(j, "mean_us"), num(j, "p50_us"), num(j, "p99_us"));
}

static void top_print_requests(struct top_out *o, const json_t *f)
{
	const json_t *j;
	size_t i;

	top_line(o, "%-18s %10s %11s %11s %11s", "OPERATION", "a second", "mean us", "p50 us",
		 "p99 us");
	json_array_foreach (json_object_get(f, "operations"), i, j)
		top_print_latency(o, text(j, "op"), j);
	top_line(o, "%s", "STAGE");
	json_array_foreach (json_object_get(f, "stages"), i, j)
		top_print_latency(o, text(j, "stage"), j);
	if (json_object_get(f, "commit_wait"))
		top_print_latency(o, "commit wait", json_object_get(f, "commit_wait"));
}

static void top_print_mirrors(struct top_out *o, const json_t *f)
{
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES];
	const json_t *j, *r = json_object_get(f, "replica");
	size_t i;

	json_array_foreach (json_object_get(f, "mirrors"), i, j) {
		const json_t *latency = json_object_get(j, "latency");

		top_line(o, "MIRROR %s  %s, %.0f lanes, %s/s, lag %.0f (%s)", text(j, "mirror"),
			 text(j, "state"), num(j, "lanes"), size(num(j, "bytes_per_second"), a),
			 num(j, "lag_records"), size(num(j, "lag_bytes"), b));
		top_line(o, "  acknowledged after p50 %.1f us, p99 %.1f us; %.1f retries a second",
			 num(latency, "p50_us"), num(latency, "p99_us"),
			 num(j, "retries_per_second"));
	}
	if (r)
		top_line(o, "PRIMARY %s, %.0f records/s, %s/s, received LSN %.0f, applied %.0f",
			 num(r, "connected") > 0 ? "connected" : "not connected",
			 num(r, "records_per_second"), size(num(r, "bytes_per_second"), a),
			 num(r, "received_lsn"), num(r, "applied_lsn"));
}

static void top_print_storage(struct top_out *o, const json_t *f)
{
	const json_t *log = json_object_get(f, "log"), *ckpt = json_object_get(f, "checkpoint");
	const json_t *memory = json_object_get(f, "memory");
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES], pic[TOP_BAR + 3];

	top_line(o, "LOG    %s %s of %s, %s/s",
		 bar(num(log, "used_bytes") / num(log, "capacity_bytes"), pic),
		 size(num(log, "used_bytes"), a), size(num(log, "capacity_bytes"), b),
		 size(num(log, "bytes_per_second"), c));
	top_line(o, "CKPT   %.0f made, the last %s in %.0f ms%s", num(ckpt, "count"),
		 size(num(ckpt, "last_written_bytes"), a), num(ckpt, "last_duration_ns") / 1e6,
		 num(ckpt, "running") > 0 ? "; one is running" : "");
	top_line(o, "ARENA  %s %s of %s, hit rate %.3f",
		 bar(num(memory, "used_bytes") / num(memory, "arena_bytes"), pic),
		 size(num(memory, "used_bytes"), a), size(num(memory, "arena_bytes"), b),
		 num(memory, "hit_rate"));
}

static void top_print_classes(struct top_out *o, const json_t *f)
{
	char a[UNITS_TEXT_BYTES], pic[TOP_BAR + 3];
	const json_t *j;
	size_t i;

	json_array_foreach (json_object_get(f, "classes"), i, j)
		top_line(o, "  %6s %s %.0f of %.0f slots, %s", text(j, "class"),
			 bar(num(j, "used_slots") / num(j, "slots"), pic), num(j, "used_slots"),
			 num(j, "slots"), size(num(j, "used_bytes"), a));
}

static void top_print_tuner(struct top_out *o, const json_t *f)
{
	const json_t *t = json_object_get(f, "tuner"), *settings = json_object_get(t, "settings");

	top_line(o, "TUNER  %s: lanes %.0f, poll_us %.0f, batch %.0f; reward %.3f, regret %.3f",
		 num(t, "active") > 0 ? "active" : "static", num(settings, "lanes"),
		 num(settings, "poll_us"), num(settings, "batch"), num(t, "reward"),
		 num(t, "regret"));
}

void top_print(const json_t *f, FILE *out, struct top_screen screen)
{
	struct top_out o = { out, screen, screen.rows > 0 };
	const json_t *bytes = json_object_get(f, "bytes_per_second");
	char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], c[UNITS_TEXT_BYTES];

	if (!o.terminal)
		o.screen = (struct top_screen){ UINT_MAX, UINT_MAX };
	top_line(&o,
		 "kvfs %s %s  cpu %.0f %%, resident %s, read %s/s, write %s/s, %.0f in flight%s%s",
		 text(f, "version"), text(f, "role"), num(f, "cpu_percent"),
		 size(num(json_object_get(f, "memory"), "resident_bytes"), a),
		 size(num(bytes, "read"), b), size(num(bytes, "write"), c), num(f, "in_flight"),
		 num(f, "degraded") > 0 ? "  DEGRADED" : "",
		 num(f, "failed") > 0 ? "  FAILED" : "");
	top_print_mirrors(&o, f);
	top_print_storage(&o, f);
	top_print_tuner(&o, f);
	top_print_requests(&o, f);
	top_line(&o, "%s", "CLASS  slots in use, by usable bytes of one");
	top_print_classes(&o, f);
}
