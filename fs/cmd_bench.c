/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs bench: command line and report. The work is in bench_load.c. */
#include "fs/bench.h"
#include "fs/cmd.h"

#include "common/diag.h"
#include "common/units.h"

#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_args {
	struct bench_config cfg;
	const char *loads;
	bool json;
};

static void bench_usage(FILE *out)
{
	const struct bench_load *l;

	fprintf(out,
		"usage: kvfs bench --dir DIR [--load LOAD[,LOAD...]] [--value SIZE] [--keys N]\n"
		"                  [--threads N] [--seconds S] [--file-size SIZE] [--seed N] "
		"[--json]\n"
		"\nRuns whole-file operations in DIR/kvfs-bench and reports rate and latency.\n"
		"\n  --dir DIR         any directory, on kvfs or elsewhere\n"
		"  --load LOAD       default: get,put\n"
		"  --value SIZE      bytes of a value (1K)\n"
		"  --keys N          keys made beforehand (1000)\n"
		"  --threads N       clients (2)\n"
		"  --seconds S       time of each load (5)\n"
		"  --file-size SIZE  of seqwrite, all threads together (256M)\n"
		"  --seed N          of the choice of keys (1)\n"
		"  --json            one object for scripts\n\nLoads:\n");
	for (unsigned i = 0; (l = bench_load_at(i)); i++)
		fprintf(out, "  %-9s %s\n", l->name, l->what);
}

static int bench_bad(const char *option, const char *value, const char *remedy)
{
	diag_error("bench: %s %s: %s", option, value, remedy);
	return CMD_USAGE;
}

static int bench_set(struct bench_args *a, int opt, const char *value)
{
	uint64_t n = 0;
	char *end;

	switch (opt) {
	case 'd':
		a->cfg.dir = value;
		return 0;
	case 'l':
		a->loads = value;
		return 0;
	case 'v':
		if (units_parse_size(value, &a->cfg.value_bytes) ||
		    a->cfg.value_bytes > (1ULL << 30))
			return bench_bad("--value", value, "give a size from 0 to 1G");
		return 0;
	case 'k':
		if (units_parse_u64(value, 1, 1000000000, &a->cfg.keys))
			return bench_bad("--keys", value, "give a number from 1 to 1000000000");
		return 0;
	case 't':
		if (units_parse_u64(value, 1, 256, &n))
			return bench_bad("--threads", value, "give a number from 1 to 256");
		a->cfg.threads = (unsigned)n;
		return 0;
	case 's':
		a->cfg.seconds = strtod(value, &end);
		if (*end || end == value || !(a->cfg.seconds > 0 && a->cfg.seconds <= 86400))
			return bench_bad("--seconds", value, "give seconds above 0, at most 86400");
		return 0;
	case 'f':
		if (units_parse_size(value, &a->cfg.file_bytes) || a->cfg.file_bytes == 0)
			return bench_bad("--file-size", value, "give a size, such as 256M");
		return 0;
	case 'S':
		if (units_parse_u64(value, 1, UINT64_MAX, &a->cfg.seed))
			return bench_bad("--seed", value, "give a number above 0");
		return 0;
	case 'j':
		a->json = true;
		return 0;
	default:
		bench_usage(stderr);
		return CMD_USAGE;
	}
}

static void bench_progress(uint64_t done, uint64_t total)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\rmaking keys: %llu of %llu\033[K", (unsigned long long)done,
			(unsigned long long)total);
}

static json_t *bench_json(const struct bench_config *cfg, const struct bench_result *r)
{
	return json_pack("{s:s s:I s:I s:i s:f s:I s:f s:f s:f s:f s:f s:f s:I}", "load",
			 cfg->load->name, "value_bytes", (json_int_t)cfg->value_bytes, "keys",
			 (json_int_t)cfg->keys, "threads", (int)cfg->threads, "seconds", r->seconds,
			 "operations", (json_int_t)r->ops, "operations_per_second",
			 (double)r->ops / r->seconds, "bytes_per_second",
			 (double)r->bytes / r->seconds, "mean_us",
			 histogram_mean(&r->latency) / 1e3, "p50_us",
			 (double)histogram_quantile(&r->latency, 0.5) / 1e3, "p99_us",
			 (double)histogram_quantile(&r->latency, 0.99) / 1e3, "p999_us",
			 (double)histogram_quantile(&r->latency, 0.999) / 1e3, "errors",
			 (json_int_t)r->errors);
}

static void bench_print(const struct bench_config *cfg, const struct bench_result *r)
{
	char value[UNITS_TEXT_BYTES], rate[UNITS_TEXT_BYTES];

	printf("%-9s %10s %10.0f %10s/s %9.1f %9.1f %9.1f %9.1f %7llu\n", cfg->load->name,
	       units_format_size(cfg->load->sequential ? 1U << 20 : cfg->value_bytes, value),
	       (double)r->ops / r->seconds,
	       units_format_size((uint64_t)((double)r->bytes / r->seconds), rate),
	       histogram_mean(&r->latency) / 1e3,
	       (double)histogram_quantile(&r->latency, 0.5) / 1e3,
	       (double)histogram_quantile(&r->latency, 0.99) / 1e3,
	       (double)histogram_quantile(&r->latency, 0.999) / 1e3, (unsigned long long)r->errors);
	fflush(stdout);
}

static int bench_one(struct bench_args *a, json_t *rows)
{
	struct bench_result *r = calloc(1, sizeof(*r));
	int err = r ? bench_prepare(&a->cfg, a->json ? NULL : bench_progress) : -ENOMEM;

	if (isatty(STDERR_FILENO) && !a->json)
		fprintf(stderr, "\r\033[K");
	if (!err)
		err = bench_run(&a->cfg, r);
	if (!err && a->json)
		json_array_append_new(rows, bench_json(&a->cfg, r));
	else if (!err)
		bench_print(&a->cfg, r);
	if (!err && r->errors)
		diag_warn("bench: %s: %llu operations failed, the first with: %s",
			  a->cfg.load->name, (unsigned long long)r->errors,
			  strerror(r->first_errno));
	bench_clean(&a->cfg);
	if (err)
		diag_error("bench: %s in %s: %s", a->cfg.load->name, a->cfg.dir, strerror(-err));
	err = err || r->errors ? CMD_FAILED : CMD_OK;
	free(r);
	return err;
}

static int bench_all(struct bench_args *a)
{
	char *list = strdup(a->loads), *save = NULL, *name;
	json_t *rows = json_array();
	int rc = list && rows ? CMD_OK : CMD_FAILED;

	if (!a->json)
		printf("%-9s %10s %10s %12s %9s %9s %9s %9s %7s\n", "load", "value", "ops/s",
		       "bytes", "mean us", "p50 us", "p99 us", "p99.9 us", "errors");
	for (name = list ? strtok_r(list, ",", &save) : NULL; name && rc == CMD_OK;
	     name = strtok_r(NULL, ",", &save)) {
		a->cfg.load = bench_load_find(name);
		rc = a->cfg.load ? bench_one(a, rows)
				 : bench_bad("--load", name, "no such load, see kvfs bench --help");
	}
	if (a->json && rc != CMD_USAGE) {
		json_dumpf(rows, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(rows);
	free(list);
	return rc;
}

int cmd_bench(int argc, char **argv)
{
	static const struct option options[] = {
		{ "dir", required_argument, NULL, 'd' },
		{ "load", required_argument, NULL, 'l' },
		{ "value", required_argument, NULL, 'v' },
		{ "keys", required_argument, NULL, 'k' },
		{ "threads", required_argument, NULL, 't' },
		{ "seconds", required_argument, NULL, 's' },
		{ "seed", required_argument, NULL, 'S' },
		{ "file-size", required_argument, NULL, 'f' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct bench_args a = {
		.cfg = { .keys = 1000, .value_bytes = 1024, .file_bytes = 256ULL << 20,
			 .threads = 2, .seconds = 5, .seed = 1 },
		.loads = "get,put",
	};
	int opt, rc;

	while ((opt = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (opt == 'h') {
			bench_usage(stdout);
			return CMD_OK;
		}
		rc = bench_set(&a, opt, optarg);
		if (rc)
			return rc;
	}
	if (!a.cfg.dir || optind != argc) {
		diag_error("bench: give the directory with --dir DIR, see kvfs bench --help");
		return CMD_USAGE;
	}
	return bench_all(&a);
}
