/* SPDX-License-Identifier: Apache-2.0 */
/* What kvfs bench --replication prints: tables, ratios, JSON. See bench_replication.h. */
#include "fs/bench/bench_replication.h"

#include "common/json_text.h"
#include "common/units.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* What shared memory has to be at least, against tcp in the same run, by one client with one
 * record outstanding, one mirror and protocol B. */
static const struct {
	uint64_t value_bytes;
	double bar;
} report_bars[] = { { 1024, 4 }, { 4096, 4 }, { 16384, 7 } };

static int report_compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(const struct bench_results *r, const struct bench_cell *c,
				    unsigned setting, size_t figure_offset)
{
	unsigned n = r->cfg->runs;
	double v[BENCH_RUNS_MAX];

	if (!c->done[setting])
		return (struct bench_spread){ 0 };
	for (unsigned i = 0; i < n; i++)
		memcpy(&v[i], (const char *)&c->runs[setting][i] + figure_offset, sizeof(v[i]));
	qsort(v, n, sizeof(v[0]), report_compare);
	return (struct bench_spread){ v[0], (v[(n - 1) / 2] + v[n / 2]) / 2, v[n - 1] };
}

static const struct bench_cell *report_find(const struct bench_results *r, enum addr_kind kind,
					    const struct bench_load *load, uint64_t value_bytes)
{
	for (unsigned i = 0; i < r->cell_count; i++) {
		const struct bench_cell *c = &r->cells[i];

		if (c->kind == kind && c->load == load && c->value_bytes == value_bytes)
			return c;
	}
	return NULL;
}

bool bench_ratio(const struct bench_results *r, const struct bench_load *load, uint64_t value_bytes,
		 double *ret_ratio, double *ret_bar)
{
	const struct bench_cell *shm = report_find(r, ADDR_SHM, load, value_bytes);
	const struct bench_cell *tcp = report_find(r, ADDR_TCP, load, value_bytes);
	double shm_ops, tcp_ops, bar = 0;

	if (!shm || !tcp || !bench_measures(r->cfg, BENCH_STATIC))
		return false;
	shm_ops = BENCH_SPREAD(r, shm, BENCH_STATIC, ops).median;
	tcp_ops = BENCH_SPREAD(r, tcp, BENCH_STATIC, ops).median;
	if (tcp_ops <= 0 || shm_ops <= 0)
		return false;
	for (size_t i = 0; i < sizeof(report_bars) / sizeof(report_bars[0]); i++) {
		if (report_bars[i].value_bytes == value_bytes &&
		    load == bench_load_find("closed") && r->cfg->mirrors == 1 &&
		    r->cfg->protocol == COMMIT_PROTOCOL_B)
			bar = report_bars[i].bar;
	}
	*ret_ratio = shm_ops / tcp_ops;
	*ret_bar = bar;
	return true;
}

static bool report_compares(const struct bench_results *r)
{
	return bench_measures(r->cfg, BENCH_STATIC) && bench_measures(r->cfg, BENCH_TUNED);
}

static void report_heading(const struct bench_results *r, const struct bench_cell *c)
{
	printf("%s: %s\n%u client%s, %u mirror%s, protocol %c, medians of %u run%s of %g s\n",
	       c->load->name, c->load->what, c->clients, c->clients == 1 ? "" : "s",
	       r->cfg->mirrors, r->cfg->mirrors == 1 ? "" : "s", "ABC"[r->cfg->protocol],
	       r->cfg->runs, r->cfg->runs == 1 ? "" : "s", r->cfg->each.seconds);
	printf("%-20s", "");
	for (unsigned i = 0; bench_setting_at(i); i++) {
		if (bench_measures(r->cfg, i))
			printf(" | %-46s", bench_setting_at(i)->name);
	}
	printf("\n%-9s %10s", "transport", "value");
	for (unsigned i = 0; bench_setting_at(i); i++) {
		if (bench_measures(r->cfg, i))
			printf(" | %9s %6s %9s %9s %9s", "ops/s", "spread", "mean us", "p99 us",
			       "p99.9 us");
	}
	printf(report_compares(r) ? " | tuned/static\n" : "\n");
}

static void report_row(const struct bench_results *r, const struct bench_cell *c)
{
	char value[UNITS_TEXT_BYTES], name[16];

	snprintf(name, sizeof(name), "%s%s", bench_transport_name(c->kind), c->emulated ? "*" : "");
	printf("%-9s %10s", name, units_format_size(c->value_bytes, value));
	for (unsigned i = 0; bench_setting_at(i); i++) {
		struct bench_spread ops = BENCH_SPREAD(r, c, i, ops);

		if (!bench_measures(r->cfg, i))
			continue;
		if (!c->done[i]) {
			printf(" | %-46s", "failed");
			continue;
		}
		printf(" | %9.0f %4.0f %% %9.1f %9.1f %9.1f", ops.median,
		       ops.median > 0 ? 100 * (ops.high - ops.low) / ops.median : 0,
		       BENCH_SPREAD(r, c, i, mean_us).median, BENCH_SPREAD(r, c, i, p99_us).median,
		       BENCH_SPREAD(r, c, i, p999_us).median);
	}
	if (report_compares(r) && c->done[BENCH_TUNED] &&
	    BENCH_SPREAD(r, c, BENCH_STATIC, ops).median > 0)
		printf(" | %.2f", BENCH_SPREAD(r, c, BENCH_TUNED, ops).median /
				      BENCH_SPREAD(r, c, BENCH_STATIC, ops).median);
	putchar('\n');
}

void bench_report_table(const struct bench_results *r, unsigned first, unsigned n)
{
	bool emulated = false;

	report_heading(r, &r->cells[first]);
	for (unsigned i = first; i < first + n; i++) {
		report_row(r, &r->cells[i]);
		emulated |= r->cells[i].emulated;
	}
	if (emulated)
		printf("* %s is an emulated RDMA device: it shows function, not speed\n",
		       r->device);
	putchar('\n');
	fflush(stdout);
}

void bench_report_ratios(const struct bench_results *r)
{
	char value[UNITS_TEXT_BYTES];
	double ratio, bar;

	for (unsigned i = 0; i < r->cfg->load_count; i++) {
		for (unsigned v = 0; v < r->cfg->value_count; v++) {
			const struct bench_load *load = r->cfg->loads[i];
			uint64_t bytes = r->cfg->values[v];

			if (!bench_ratio(r, load, bytes, &ratio, &bar))
				continue;
			printf("shm to tcp, %s, %s, static: %.2f", load->name,
			       units_format_size(bytes, value), ratio);
			if (bar > 0)
				printf(" (to be at least %g: %s)", bar,
				       ratio >= bar ? "met" : "not met");
			putchar('\n');
		}
	}
}

static json_t *report_json_spread(struct bench_spread s)
{
	return json_pack("{s:f, s:f, s:f}", "low", s.low, "median", s.median, "high", s.high);
}

static void report_json_cell(const struct bench_results *r, const struct bench_cell *c,
			     json_t *rows)
{
	for (unsigned i = 0; bench_setting_at(i); i++) {
		json_t *row;

		if (!bench_measures(r->cfg, i) || !c->done[i])
			continue;
		row = json_pack("{s:s, s:b, s:s, s:I, s:i, s:s, s:I}", "transport",
				bench_transport_name(c->kind), "emulated", c->emulated, "load",
				c->load->name, "value_bytes", (json_int_t)c->value_bytes, "clients",
				(int)c->clients, "settings", bench_setting_at(i)->name, "errors",
				(json_int_t)c->errors[i]);
		json_object_set_new(row, "operations_per_second",
				    report_json_spread(BENCH_SPREAD(r, c, i, ops)));
		json_object_set_new(row, "mean_us",
				    report_json_spread(BENCH_SPREAD(r, c, i, mean_us)));
		json_object_set_new(row, "p99_us",
				    report_json_spread(BENCH_SPREAD(r, c, i, p99_us)));
		json_object_set_new(row, "p999_us",
				    report_json_spread(BENCH_SPREAD(r, c, i, p999_us)));
		json_array_append_new(rows, row);
	}
}

static json_t *report_json_ratios(const struct bench_results *r)
{
	json_t *list = json_array();
	double ratio, bar;

	for (unsigned i = 0; i < r->cfg->load_count; i++) {
		for (unsigned v = 0; v < r->cfg->value_count; v++) {
			if (!bench_ratio(r, r->cfg->loads[i], r->cfg->values[v], &ratio, &bar))
				continue;
			json_array_append_new(
			    list, json_pack("{s:s, s:I, s:f, s:f}", "load", r->cfg->loads[i]->name,
					    "value_bytes", (json_int_t)r->cfg->values[v],
					    "shm_to_tcp", ratio, "bar", bar));
		}
	}
	return list;
}

void bench_report_json(const struct bench_results *r)
{
	json_t *rows = json_array(), *left_out = json_array(), *all;
	char protocol[2] = { "ABC"[r->cfg->protocol], '\0' };

	for (unsigned i = 0; i < r->cell_count; i++)
		report_json_cell(r, &r->cells[i], rows);
	for (unsigned i = 0; i < r->left_out_count; i++)
		json_array_append_new(left_out,
				      json_pack("{s:s, s:o}", "transport",
						bench_transport_name(r->left_out[i].kind), "why",
						json_text(r->left_out[i].why)));
	all = json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:I, s:o, s:o, s:o}", "mirrors",
			(int)r->cfg->mirrors, "protocol", protocol, "runs", (int)r->cfg->runs,
			"seconds", r->cfg->each.seconds, "warm_up_seconds", r->cfg->warm_up_s,
			"settle_seconds", r->cfg->settle_s, "keys",
			(json_int_t)r->cfg->each.keys, "rows", rows, "ratios",
			report_json_ratios(r), "left_out", left_out);
	if (r->device[0])
		json_object_set_new(all, "emulated_device", json_string(r->device));
	json_dumpf(all, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(all);
}
