/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of kvfs bench --replication; the options it shares with kvfs bench --dir are
 * read in cmd_bench.c. Before any thread. */
#include "fs/bench/bench_replication.h"

#include "common/diag.h"
#include "common/exit_code.h"
#include "common/units.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int args_bad(const char *option, const char *value, const char *remedy)
{
	diag_error("bench: %s %s: %s", option, value, remedy);
	return CMD_USAGE;
}

static int args_add_transport(struct bench_replication *cfg, const char *name)
{
	static const enum addr_kind kinds[] = { ADDR_TCP, ADDR_SHM, ADDR_VERBS };
	unsigned i;

	for (i = 0; i < BENCH_TRANSPORTS; i++) {
		if (strcmp(name, bench_transport_name(kinds[i])) == 0)
			break;
	}
	if (i == BENCH_TRANSPORTS)
		return args_bad("--transport", name, "give a list of tcp, shm and verbs");
	for (unsigned k = 0; k < cfg->transport_count; k++) {
		if (cfg->transports[k] == kinds[i])
			return args_bad("--transport", name, "give it once");
	}
	cfg->transports[cfg->transport_count++] = kinds[i];
	return 0;
}

static int args_add_load(struct bench_replication *cfg, const char *name)
{
	const struct bench_load *load = bench_load_find(name);

	if (!load)
		return args_bad("--load", name, "no such load, see kvfs bench --help");
	if (load->sequential || load->percent[BENCH_APPEND])
		return args_bad("--load", name, "a load of files, not of the engine");
	if (cfg->load_count == BENCH_LIST_MAX)
		return args_bad("--load", name, "too many in one list");
	cfg->loads[cfg->load_count++] = load;
	return 0;
}

static int args_add_value(struct bench_replication *cfg, const char *text)
{
	uint64_t bytes;

	if (units_parse_size(text, &bytes) != 0 || bytes == 0 || bytes > RECORD_DATA_MAX)
		return args_bad("--value", text, "give sizes from 1 to 1M");
	if (cfg->value_count == BENCH_LIST_MAX)
		return args_bad("--value", text, "too many in one list");
	cfg->values[cfg->value_count++] = bytes;
	return 0;
}

static int args_add_setting(struct bench_replication *cfg, const char *name)
{
	for (unsigned i = 0; bench_setting_at(i); i++) {
		if (strcmp(name, bench_setting_at(i)->name) != 0)
			continue;
		cfg->settings |= 1U << i;
		return 0;
	}
	return args_bad("--settings", name, "give a list of static and tuned");
}

/* A list replaces the one before it. */
static const struct {
	const char *option;
	int (*add)(struct bench_replication *cfg, const char *item);
	size_t count_offset;
} args_lists[] = {
	{ "--transport", args_add_transport, offsetof(struct bench_replication, transport_count) },
	{ "--load", args_add_load, offsetof(struct bench_replication, load_count) },
	{ "--value", args_add_value, offsetof(struct bench_replication, value_count) },
	{ "--settings", args_add_setting, offsetof(struct bench_replication, settings) },
};

int bench_replication_set_list(struct bench_replication *cfg, const char *option, const char *value)
{
	char *list = strdup(value), *save = NULL, *item;
	unsigned none = 0, which = 0;
	int rc = 0;

	if (!list)
		return args_bad(option, value, strerror(ENOMEM));
	while (strcmp(option, args_lists[which].option) != 0)
		which++;
	memcpy((char *)cfg + args_lists[which].count_offset, &none, sizeof(none));
	item = strtok_r(list, ",", &save);
	if (!item)
		rc = args_bad(option, "''", "the list is empty");
	for (; item && !rc; item = strtok_r(NULL, ",", &save))
		rc = args_lists[which].add(cfg, item);
	free(list);
	return rc;
}

void bench_replication_defaults(struct bench_replication *cfg)
{
	memset(cfg, 0, sizeof(*cfg));
	cfg->dir = "/dev/shm";
	cfg->mirrors = 1;
	cfg->runs = 3;
	cfg->warm_up_s = 1;
	cfg->settle_s = 15;
	cfg->protocol = COMMIT_PROTOCOL_B;
	(void)bench_replication_set_list(cfg, "--transport", "tcp,shm,verbs");
	(void)bench_replication_set_list(cfg, "--load", "a,b,c,d,f,closed");
	(void)bench_replication_set_list(cfg, "--value", "1K,4K,16K");
	(void)bench_replication_set_list(cfg, "--settings", "static,tuned");
}

/* What both a primary and a mirror know, and neither has from elsewhere. */
static int args_check_options(const char *list)
{
	static const enum options_role roles[] = { OPTIONS_MOUNT, OPTIONS_MIRROR };
	char why[OPTIONS_WHY_BYTES];

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
		struct options opt;

		options_init(&opt, roles[i]);
		if (options_set_list(&opt, list, OPTIONS_COMMAND, why) != 0) {
			diag_error("bench: -o: %s (options of primary and mirrors alike)", why);
			return CMD_USAGE;
		}
	}
	return 0;
}

int bench_replication_check(const struct bench_replication *cfg)
{
	if (cfg->options)
		return args_check_options(cfg->options);
	return 0;
}
