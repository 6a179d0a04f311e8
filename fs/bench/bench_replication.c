/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the cells of kvfs bench --replication: see bench_replication.h. */
#include "fs/bench/bench_replication.h"

#include "common/clock.h"
#include "common/diag.h"
#include "common/exit_code.h"
#include "fs/node/node_tuner.h"
#include "replication/transport/transport_verbs.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct bench_setting replication_settings[] = {
	[BENCH_STATIC] = { "static", OPTIONS_OFF },
	[BENCH_TUNED] = { "tuned", OPTIONS_ON },
};
static_assert(sizeof(replication_settings) / sizeof(replication_settings[0]) == BENCH_SETTINGS_MAX,
	      "settings of a cell");

/* Shorter than a mount's, so that the tuner is done learning while one waits. */
#define REPLICATION_WINDOW_NS (NSEC_PER_SEC / 4)

const struct bench_setting *bench_setting_at(unsigned i)
{
	return i < sizeof(replication_settings) / sizeof(replication_settings[0]) ?
		       &replication_settings[i] : NULL;
}

const char *bench_transport_name(enum addr_kind kind)
{
	return kind == ADDR_SHM ? "shm" : kind == ADDR_VERBS ? "verbs" : "tcp";
}

/* The signals that end us; blocked, so that they are seen only here. */
struct replication_signals {
	sigset_t set, before;
	int got;
};

static void replication_signals_take(struct replication_signals *s)
{
	s->got = 0;
	sigemptyset(&s->set);
	sigaddset(&s->set, SIGINT);
	sigaddset(&s->set, SIGTERM);
	sigaddset(&s->set, SIGHUP);
	sigprocmask(SIG_BLOCK, &s->set, &s->before);
}

/* bench_pause: the measured time itself, too. */
static int replication_pause(void *ctx, double seconds)
{
	struct replication_signals *s = ctx;
	uint64_t deadline_ns = clock_mono_ns() + (uint64_t)(seconds * 1e9), now;

	while (!s->got) {
		struct timespec left;
		int got;

		now = clock_mono_ns();
		left.tv_sec = now < deadline_ns ? (time_t)((deadline_ns - now) / NSEC_PER_SEC) : 0;
		left.tv_nsec = now < deadline_ns ? (long)((deadline_ns - now) % NSEC_PER_SEC) : 0;
		got = sigtimedwait(&s->set, NULL, &left);
		if (got > 0)
			s->got = got;
		else if (now >= deadline_ns)
			return 0;
	}
	return -EINTR;
}

struct replication {
	const struct bench_replication *cfg;
	struct bench_results results;
	struct replication_signals signals;
	char why[NODE_WHY_BYTES];
};

static int replication_primary_options(struct replication *r, const struct bench_site *site,
				       unsigned setting, struct options *ret_opt)
{
	int err = 0;

	options_init(ret_opt, OPTIONS_MOUNT);
	ret_opt->protocol = (unsigned)r->cfg->protocol;
	ret_opt->min_mirrors = r->cfg->mirrors;
	ret_opt->tuner = bench_setting_at(setting)->tuner;
	if (r->cfg->options)
		err = options_set_list(ret_opt, r->cfg->options, OPTIONS_COMMAND, r->why);
	for (unsigned i = 0; i < site->mirror_count; i++)
		ret_opt->mirrors.list[i] = site->mirrors[i].addr;
	ret_opt->mirrors.count = site->mirror_count;
	return err ? err : options_finish(ret_opt, r->why);
}

static void replication_note_run(struct bench_cell *c, unsigned setting, unsigned run,
				 const struct bench_result *result)
{
	c->runs[setting][run] = (struct bench_run){
		.ops = (double)result->ops / result->seconds,
		.mean_us = histogram_mean(&result->latency) / 1e3,
		.p99_us = (double)histogram_quantile(&result->latency, 0.99) / 1e3,
		.p999_us = (double)histogram_quantile(&result->latency, 0.999) / 1e3,
	};
	c->errors[setting] += result->errors;
	if (!c->first_errno)
		c->first_errno = result->first_errno;
}

/* run < 0: the warm-up. */
static int replication_run(struct replication *r, struct bench_engine *e, struct bench_cell *c,
			   unsigned setting, int run, struct bench_keys *keys)
{
	struct bench_config cfg = r->cfg->each;
	struct bench_result *result = calloc(1, sizeof(*result));
	int err = result ? 0 : -ENOMEM;

	cfg.load = c->load;
	cfg.value_bytes = c->value_bytes;
	cfg.threads = c->clients;
	cfg.seed += (uint64_t)(run + 1);
	if (run < 0)
		/* side by side, both get what the tuner needs */
		cfg.seconds = bench_measures(r->cfg, BENCH_TUNED) ?
				      r->cfg->settle_s : r->cfg->warm_up_s;
	if (!err)
		err = bench_clients_run(e, &cfg, keys, replication_pause, &r->signals, result);
	if (!err && run >= 0)
		replication_note_run(c, setting, (unsigned)run, result);
	free(result);
	return err;
}

/* Without a model from before, so that each cell begins alike. */
static int replication_start_tuner(struct replication *r, struct node *n)
{
	struct node_tuner_config cfg;

	node_tuner_config_init(n, &cfg);
	cfg.window_ns = REPLICATION_WINDOW_NS;
	cfg.keep_model = false;
	return node_tuner_start(n, &cfg, r->why, sizeof(r->why));
}

static int replication_runs(struct replication *r, struct bench_engine *e, struct bench_cell *c,
			    unsigned setting)
{
	struct node *n = bench_engine_node(e);
	struct bench_config cfg = r->cfg->each;
	struct bench_keys *keys = calloc(1, sizeof(*keys));
	int err = keys ? 0 : -ENOMEM;

	cfg.value_bytes = c->value_bytes;
	if (!err)
		err = bench_clients_prepare(e, &cfg, replication_pause, &r->signals);
	if (err == -ENOSPC)
		snprintf(r->why, sizeof(r->why),
			 "the keys don't fit the arena: give fewer --keys or a larger -o arena=");
	if (!err)
		bench_keys_init(keys, c->load, cfg.keys, c->clients);
	if (!err && bench_setting_at(setting)->tuner == OPTIONS_ON)
		err = replication_start_tuner(r, n);
	for (int run = -1; !err && run < (int)r->cfg->runs; run++)
		err = replication_run(r, e, c, setting, run, keys);
	node_tuner_stop(n);
	free(keys);
	return err;
}

/* On volumes of its own from beginning to end. */
static int replication_cell(struct replication *r, struct bench_cell *c, unsigned setting)
{
	const struct bench_pause pause = { replication_pause, &r->signals };
	char volume[PATH_MAX];
	struct bench_engine *e = NULL;
	struct bench_site site;
	struct options opt;
	int err;

	r->why[0] = '\0';
	err = bench_site_open(&site, r->cfg->dir, r->cfg->mirrors, r->why);
	if (err)
		return err;
	bench_site_volume(&site, "primary", volume);
	err = bench_site_start_mirrors(&site, c->kind, r->cfg->options, &pause, r->why);
	if (!err)
		err = replication_primary_options(r, &site, setting, &opt);
	if (!err)
		err = bench_engine_open(&opt, volume, NULL, &e, r->why);
	if (!err)
		err = replication_runs(r, e, c, setting);
	bench_engine_close(e);
	if (bench_site_close(&site) != 0)
		diag_warn("bench: %s could not be removed", r->cfg->dir);
	return err;
}

static void replication_progress(const struct bench_cell *c, unsigned setting)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%s: %s, %llu bytes, %s\033[K", c->load->name,
			bench_transport_name(c->kind), (unsigned long long)c->value_bytes,
			bench_setting_at(setting)->name);
}

static void replication_progress_end(void)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

/* All settings of a cell; one line when it fails. 0, 1 (operations failed) or -errno. */
static int replication_measure(struct replication *r, struct bench_cell *c)
{
	uint64_t errors = 0;
	int err = 0;

	for (unsigned i = 0; !err && bench_setting_at(i); i++) {
		if (!bench_measures(r->cfg, i))
			continue;
		replication_progress(c, i);
		err = replication_cell(r, c, i);
		c->done[i] = !err;
		r->results.cells_done += !err;
		errors += c->errors[i];
	}
	replication_progress_end();
	if (err && r->signals.got)
		diag_error("bench: stopped by %s; nothing is left behind",
			   strsignal(r->signals.got));
	else if (err)
		diag_error("bench: %s over %s: %s", c->load->name, bench_transport_name(c->kind),
			   r->why[0] ? r->why : strerror(-err));
	else if (errors)
		diag_warn("bench: %s over %s: %llu operations failed, the first with: %s",
			  c->load->name, bench_transport_name(c->kind),
			  (unsigned long long)errors, strerror(c->first_errno));
	return err ? err : errors > 0;
}

/* The first RDMA device that is a program, of those that could be used. */
static void replication_find_emulated(struct replication *r, const char *chosen)
{
	struct verbs_choice choice = { .name = "" };
	DIR *d = opendir("/sys/class/infiniband");
	struct dirent *e;

	(void)verbs_choice_parse(chosen, &choice);
	while (d && (e = readdir(d))) {
		if (choice.name[0] && strcmp(choice.name, e->d_name) != 0)
			continue;
		if (strncmp(e->d_name, "rxe", 3) == 0 || strncmp(e->d_name, "siw", 3) == 0)
			snprintf(r->results.device, sizeof(r->results.device), "%.63s", e->d_name);
	}
	if (d)
		closedir(d);
}

/* Whether the machine has it; else one line says what was found. */
static bool replication_has(struct replication *r, enum addr_kind kind, const char *device)
{
	struct bench_left_out *out = &r->results.left_out[r->results.left_out_count];
	char text[VERBS_TEXT_BYTES];

	if (kind != ADDR_VERBS || verbs_available(device, text, sizeof(text)) == 0)
		return true;
	out->kind = kind;
	snprintf(out->why, sizeof(out->why), "found %.240s", text);
	diag_info("bench: verbs is left out: %s", out->why);
	r->results.left_out_count++;
	return false;
}

static void replication_plan_load(struct replication *r, const struct bench_load *load,
				  const enum addr_kind *kinds, unsigned kind_count)
{
	struct bench_results *res = &r->results;
	const struct bench_replication *cfg = r->cfg;
	unsigned clients = cfg->each.threads;

	if (load->clients_max && clients > load->clients_max)
		clients = load->clients_max;
	for (unsigned k = 0; k < kind_count; k++) {
		for (unsigned v = 0; v < cfg->value_count; v++) {
			struct bench_cell *c = &res->cells[res->cell_count++];

			c->kind = kinds[k];
			c->emulated = c->kind == ADDR_VERBS && res->device[0];
			c->load = load;
			c->value_bytes = cfg->values[v];
			c->clients = clients;
		}
	}
}

static int replication_plan(struct replication *r)
{
	const struct bench_replication *cfg = r->cfg;
	enum addr_kind kinds[BENCH_TRANSPORTS];
	struct options opt;
	unsigned n = 0;

	options_init(&opt, OPTIONS_MOUNT);
	if (cfg->options)
		(void)options_set_list(&opt, cfg->options, OPTIONS_COMMAND, r->why); /* checked */
	replication_find_emulated(r, opt.rdma_device);
	for (unsigned i = 0; i < cfg->transport_count; i++) {
		if (replication_has(r, cfg->transports[i], opt.rdma_device))
			kinds[n++] = cfg->transports[i];
	}
	r->results.cells = calloc((size_t)cfg->load_count * n * cfg->value_count + 1,
				  sizeof(*r->results.cells));
	if (!r->results.cells)
		return -ENOMEM;
	for (unsigned i = 0; i < cfg->load_count; i++)
		replication_plan_load(r, cfg->loads[i], kinds, n);
	return n ? 0 : -ENODEV;
}

static int replication_all(struct replication *r)
{
	struct bench_results *res = &r->results;
	unsigned table = res->cell_count / r->cfg->load_count, i, rows;
	int worst = 0;

	/* A cell that fails costs the others nothing, unless it is the first: then all would. A
	 * signal ends it, and what is there is reported. */
	for (i = 0; i < res->cell_count; i++) {
		worst |= replication_measure(r, &res->cells[i]) != 0;
		if (r->signals.got || !res->cells_done)
			break;
		if (!r->cfg->json && (i + 1) % table == 0)
			bench_report_table(res, i + 1 - table, table);
	}
	/* what was not printed, and of the cell that was interrupted what there is */
	rows = i % table + (i < res->cell_count && (res->cells[i].done[BENCH_STATIC] ||
						    res->cells[i].done[BENCH_TUNED]));
	if (!r->cfg->json && res->cells_done && rows)
		bench_report_table(res, i - i % table, rows);
	return worst;
}

int bench_replication_run(const struct bench_replication *cfg)
{
	struct replication r = { .cfg = cfg, .results.cfg = cfg };
	int err;

	replication_signals_take(&r.signals);
	err = replication_plan(&r);
	if (err)
		diag_error("bench: nothing is left to measure: %s", strerror(-err));
	else
		err = replication_all(&r);
	if (err >= 0 && r.results.cells_done) {
		int plot = cfg->plot ? bench_plot_write(&r.results, cfg->plot) : 0;

		if (cfg->json)
			bench_report_json(&r.results);
		else
			bench_report_ratios(&r.results);
		if (plot)
			diag_error("bench: --plot %s: %s", cfg->plot, strerror(-plot));
		err = err ? err : plot;
	}
	free(r.results.cells);
	sigprocmask(SIG_SETMASK, &r.signals.before, NULL);
	return err ? CMD_FAILED : CMD_OK;
}
