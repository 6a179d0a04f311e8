/* SPDX-License-Identifier: Apache-2.0 */
/* Prometheus text: see metrics_text.h. Times are counted in nanoseconds and shown in seconds. */
#include "common/metrics_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *text_type(enum metrics_kind kind)
{
	switch (kind) {
	case METRICS_COUNTER:
		return "counter";
	case METRICS_GAUGE:
		return "gauge";
	case METRICS_HISTOGRAM:
		return "histogram";
	case METRICS_UNTYPED:
		break;
	}
	return "untyped";
}

static void text_head(FILE *out, const struct metrics_def *def)
{
	fprintf(out, "# HELP %s ", def->name);
	for (const char *p = def->help; *p; p++) {
		if (*p == '\\' || *p == '\n')
			fputc('\\', out);
		fputc(*p == '\n' ? 'n' : *p, out);
	}
	fprintf(out, "\n# TYPE %s %s\n", def->name, text_type(def->kind));
}

static void text_number(FILE *out, const struct metrics_def *def, uint64_t value)
{
	if (def->ns)
		fprintf(out, "%.12g", (double)value / 1e9);
	else
		fprintf(out, "%" PRIu64, value);
}

static void text_histogram(FILE *out, const struct metrics_sample *s)
{
	unsigned n = metrics_bucket_count(s->def);
	const char *comma = s->labels[0] ? "," : "";
	const char *open = s->labels[0] ? "{" : "", *close = s->labels[0] ? "}" : "";
	uint64_t seen = 0;

	for (unsigned i = 0; i < n; i++) {
		seen += s->buckets[i];
		fprintf(out, "%s_bucket{%s%sle=\"", s->def->name, s->labels, comma);
		if (i + 1 < n)
			text_number(out, s->def, metrics_bucket_max(s->def, i));
		else
			fputs("+Inf", out);
		fprintf(out, "\"} %" PRIu64 "\n", seen);
	}
	fprintf(out, "%s_sum%s%s%s ", s->def->name, open, s->labels, close);
	text_number(out, s->def, s->sum);
	fprintf(out, "\n%s_count%s%s%s %" PRIu64 "\n", s->def->name, open, s->labels, close, seen);
}

static void text_sample(FILE *out, const struct metrics_sample *s)
{
	if (s->def->kind == METRICS_HISTOGRAM) {
		text_histogram(out, s);
		return;
	}
	fprintf(out, s->labels[0] ? "%s{%s} " : "%s%s ", s->def->name, s->labels);
	if (s->is_real)
		fprintf(out, "%.12g", s->real);
	else
		text_number(out, s->def, s->value);
	fputc('\n', out);
}

int metrics_text(const struct metrics_snapshot *snap, char **ret_text, size_t *ret_len)
{
	const struct metrics_def *last = NULL;
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return -ENOMEM;
	for (unsigned i = 0; i < snap->count; i++) {
		if (snap->samples[i].def != last)
			text_head(out, snap->samples[i].def);
		last = snap->samples[i].def;
		text_sample(out, &snap->samples[i]);
	}
	if (fclose(out) != 0) {
		free(text);
		return -ENOMEM;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}
