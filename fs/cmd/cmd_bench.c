/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs bench: command line, and the report of --dir, whose work is in bench_load.c. With
 * --replication all but the command line is in bench_replication.c. */
#include "fs/bench/bench_replication.h"
#include "fs/cmd/cmd.h"

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
	struct bench_replication replication;
	const char *loads, *values; /* NULL: not given */
	bool is_replication;
	const char *only_replication, *only_dir; /* an option given that only one of them has */
};

static void bench_usage(FILE *out)
{
	const struct bench_load *l;

	fprintf(out,
		"usage: kvfs bench --dir DIR [--load LOAD[,LOAD...]] [--value SIZE] [--keys N]\n"
		"                  [--threads N] [--seconds S] [--file-size SIZE] [--seed N] "
		"[--json]\n"
		"       kvfs bench --replication [--transport LIST] [--settings LIST]\n"
		"                  [--mirrors N] [--protocol P] [--runs N] [--warm-up S] "
		"[--settle S]\n"
		"                  [--plot FILE] [-o OPTIONS] [...]\n"
		"\nRuns whole-file operations in DIR/kvfs-bench and reports rate and latency; or, "
		"with\n--replication, the engine without FUSE, with mirrors, on volumes that it "
		"makes below DIR.\n"
		"\n  --dir DIR         any directory (must be given; for replication /dev/shm)\n"
		"  --load LOAD       a list (get,put; for replication a,b,c,d,f,closed)\n"
		"  --value SIZE      bytes of a value (1K; for replication a list, 1K,4K,16K)\n"
		"  --keys N          keys made beforehand (1000)\n"
		"  --threads N       clients (2)\n"
		"  --seconds S       time of each load, or of each of its runs (5)\n"
		"  --file-size SIZE  of seqwrite, all threads together (256M)\n"
		"  --seed N          of the choice of keys (1)\n"
		"  --json            for scripts\n"
		"\nOf the replication:\n"
		"  --replication     measure replication\n"
		"  --transport LIST  of tcp, shm and verbs (tcp,shm,verbs)\n"
		"  --settings LIST   of static and tuned (static,tuned)\n"
		"  --mirrors N       1 or 2 (1)\n"
		"  --protocol P      A, B or C (B)\n"
		"  --runs N          of each, after the warm-up (3)\n"
		"  --warm-up S       seconds (1)\n"
		"  --settle S        in its place where tuned is measured, too: the tuner learns "
		"(15)\n"
		"  --plot FILE       write a figure, as SVG\n"
		"  -o OPTIONS        of primary and mirrors alike, such as lanes=4,poll_us=50\n"
		"\nLoads:\n");
	for (unsigned i = 0; (l = bench_load_at(i)); i++)
		fprintf(out, "  %-9s %s\n", l->name, l->what);
}

static int bench_bad(const char *option, const char *value, const char *remedy)
{
	diag_error("bench: %s %s: %s", option, value, remedy);
	return CMD_USAGE;
}

static int bench_set_unsigned(const char *option, const char *value, unsigned max,
			      unsigned *ret_number)
{
	char remedy[64];
	uint64_t n;

	if (units_parse_u64(value, 1, max, &n) != 0) {
		snprintf(remedy, sizeof(remedy), "give a number from 1 to %u", max);
		return bench_bad(option, value, remedy);
	}
	*ret_number = (unsigned)n;
	return 0;
}

static int bench_set_seconds(const char *option, const char *value, double *ret_seconds)
{
	char *end;
	double s = strtod(value, &end);

	if (*end || end == value || !(s > 0 && s <= 86400))
		return bench_bad(option, value, "give seconds above 0, at most 86400");
	*ret_seconds = s;
	return 0;
}

/* Options that only the replication has. */
static int bench_set_replication(struct bench_replication *r, int opt, const char *value)
{
	switch (opt) {
	case 'T':
		return bench_replication_set_list(r, "--transport", value);
	case 'm':
		return bench_set_unsigned("--mirrors", value, BENCH_MIRRORS_MAX, &r->mirrors);
	case 'p':
		if (strlen(value) != 1 || !strchr("ABC", *value))
			return bench_bad("--protocol", value, "give A, B or C");
		r->protocol = (enum commit_protocol)(*value - 'A');
		return 0;
	case 'r':
		return bench_set_unsigned("--runs", value, BENCH_RUNS_MAX, &r->runs);
	case 'e':
		return bench_replication_set_list(r, "--settings", value);
	case 'W':
		return bench_set_seconds("--settle", value, &r->settle_s);
	case 'w':
		return bench_set_seconds("--warm-up", value, &r->warm_up_s);
	case 'P':
		r->plot = value;
		return 0;
	default: /* 'o' */
		r->options = value;
		return 0;
	}
}

static int bench_set(struct bench_args *a, int opt, const char *value)
{
	switch (opt) {
	case 'd':
		a->cfg.dir = value;
		return 0;
	case 'l':
		a->loads = value;
		return 0;
	case 'v':
		a->values = value;
		return 0;
	case 'k':
		if (units_parse_u64(value, 1, 1000000000, &a->cfg.keys))
			return bench_bad("--keys", value, "give a number from 1 to 1000000000");
		return 0;
	case 't':
		return bench_set_unsigned("--threads", value, BENCH_THREADS_MAX, &a->cfg.threads);
	case 's':
		return bench_set_seconds("--seconds", value, &a->cfg.seconds);
	case 'f':
		a->only_dir = "--file-size";
		if (units_parse_size(value, &a->cfg.file_bytes) || a->cfg.file_bytes == 0)
			return bench_bad("--file-size", value, "give a size, such as 256M");
		return 0;
	case 'S':
		if (units_parse_u64(value, 1, UINT64_MAX, &a->cfg.seed))
			return bench_bad("--seed", value, "give a number above 0");
		return 0;
	case 'j':
		a->replication.json = true;
		return 0;
	case 'R':
		a->is_replication = true;
		return 0;
	case '?':
		bench_usage(stderr);
		return CMD_USAGE;
	default:
		return bench_set_replication(&a->replication, opt, value);
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
	int err = r ? bench_prepare(&a->cfg, a->replication.json ? NULL : bench_progress) : -ENOMEM;

	if (isatty(STDERR_FILENO) && !a->replication.json)
		fprintf(stderr, "\r\033[K");
	if (!err)
		err = bench_run(&a->cfg, r);
	if (!err && a->replication.json)
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
	char *list = strdup(a->loads ? a->loads : "get,put"), *save = NULL, *name;
	unsigned threads = a->cfg.threads;
	json_t *rows = json_array();
	int rc = list && rows ? CMD_OK : CMD_FAILED;

	if (!a->replication.json)
		printf("%-9s %10s %10s %12s %9s %9s %9s %9s %7s\n", "load", "value", "ops/s",
		       "bytes", "mean us", "p50 us", "p99 us", "p99.9 us", "errors");
	for (name = list ? strtok_r(list, ",", &save) : NULL; name && rc == CMD_OK;
	     name = strtok_r(NULL, ",", &save)) {
		const struct bench_load *l = bench_load_find(name);

		a->cfg.load = l;
		a->cfg.threads = l && l->clients_max && l->clients_max < threads ? l->clients_max
										 : threads;
		if (l && l->pause_us)
			rc = bench_bad("--load", name, "a load for --replication");
		else
			rc = l ? bench_one(a, rows)
			       : bench_bad("--load", name, "no such load, see kvfs bench --help");
	}
	if (a->replication.json && rc != CMD_USAGE) {
		json_dumpf(rows, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(rows);
	free(list);
	return rc;
}

static int bench_run_dir(struct bench_args *a)
{
	if (!a->cfg.dir) {
		diag_error("bench: give the directory with --dir DIR, see kvfs bench --help");
		return CMD_USAGE;
	}
	if (a->only_replication) {
		diag_error("bench: %s%s is for --replication",
			   a->only_replication[0] == '-' ? "" : "--", a->only_replication);
		return CMD_USAGE;
	}
	if (a->values && (units_parse_size(a->values, &a->cfg.value_bytes) ||
			  a->cfg.value_bytes > (1ULL << 30)))
		return bench_bad("--value", a->values, "give a size from 0 to 1G");
	return bench_all(a);
}

static int bench_run_replication(struct bench_args *a)
{
	struct bench_replication *r = &a->replication;
	int rc = 0;

	if (a->only_dir) {
		diag_error("bench: %s is not for --replication", a->only_dir);
		return CMD_USAGE;
	}
	if (a->cfg.dir)
		r->dir = a->cfg.dir;
	if (strchr(r->dir, ','))
		return bench_bad("--dir", r->dir, "a comma can't be part of it (it parts -o)");
	r->each = a->cfg;
	if (a->loads)
		rc = bench_replication_set_list(r, "--load", a->loads);
	if (!rc && a->values)
		rc = bench_replication_set_list(r, "--value", a->values);
	if (!rc)
		rc = bench_replication_check(r);
	return rc ? rc : bench_replication_run(r);
}

static const struct option bench_options[] = {
	{ "dir", required_argument, NULL, 'd' },
	{ "load", required_argument, NULL, 'l' },
	{ "value", required_argument, NULL, 'v' },
	{ "keys", required_argument, NULL, 'k' },
	{ "threads", required_argument, NULL, 't' },
	{ "seconds", required_argument, NULL, 's' },
	{ "seed", required_argument, NULL, 'S' },
	{ "file-size", required_argument, NULL, 'f' },
	{ "json", no_argument, NULL, 'j' },
	{ "replication", no_argument, NULL, 'R' },
	{ "transport", required_argument, NULL, 'T' },
	{ "mirrors", required_argument, NULL, 'm' },
	{ "protocol", required_argument, NULL, 'p' },
	{ "runs", required_argument, NULL, 'r' },
	{ "warm-up", required_argument, NULL, 'w' },
	{ "settings", required_argument, NULL, 'e' },
	{ "settle", required_argument, NULL, 'W' },
	{ "plot", required_argument, NULL, 'P' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

int cmd_bench(int argc, char **argv)
{
	struct bench_args a = {
		.cfg = { .keys = 1000, .value_bytes = 1024, .file_bytes = 256ULL << 20,
			 .threads = 2, .seconds = 5, .seed = 1 },
	};
	int opt, rc, index = 0;

	bench_replication_defaults(&a.replication);
	while ((opt = getopt_long(argc, argv, "ho:", bench_options, &index)) != -1) {
		if (opt == 'h') {
			bench_usage(stdout);
			return CMD_OK;
		}
		if (strchr("TmprwWePo", opt))
			a.only_replication = opt == 'o' ? "-o" : bench_options[index].name;
		rc = bench_set(&a, opt, optarg);
		if (rc)
			return rc;
	}
	if (optind != argc) {
		diag_error("bench: unexpected argument '%s', see kvfs bench --help", argv[optind]);
		return CMD_USAGE;
	}
	return a.is_replication ? bench_run_replication(&a) : bench_run_dir(&a);
}
