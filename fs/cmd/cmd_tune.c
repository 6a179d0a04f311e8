/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvfs tune: what the tuner of a mount does and why, orders to it, and the replay of a trace, which
 * needs no mount.
 */
#include "fs/cmd/cmd.h"

#include "common/diag.h"
#include "common/units.h"
#include "fs/admin/control.h"
#include "tuner/explain.h"
#include "tuner/trace.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TUNE_SECONDS 10
#define TUNE_EXPLAIN_DEFAULT 10
#define TUNE_USAGE                                                                          \
	"kvfs tune [--explain [N]] [--record FILE|off] [--freeze|--thaw] [--set KNOB=VALUE]... " \
	"[--json] WHERE"

struct tune_args {
	const char *where, *replay;
	json_t *request;
	bool explain, as_json;
};

static void tune_help(void)
{
	printf("usage: " TUNE_USAGE "\n"
	       "       kvfs tune --replay FILE [--explain] [--json]\n\n"
	       "Shows what the tuner of the mount at WHERE has set, and gives it orders, which\n"
	       "take effect with its next window, within a second.\n\n"
	       "  --explain [N]     the last N decisions (default: 10, most: 128); or --explain=N\n"
	       "  --record FILE     write a trace of windows and decisions; off ends it\n"
	       "  --replay FILE     decide a trace's windows anew, and say whether each came out\n"
	       "                    the same\n"
	       "  --freeze          move nothing until --thaw\n"
	       "  --thaw            go on by itself\n"
	       "  --set KNOB=VALUE  lanes, poll_us, batch or reserve_mib; freezes, until --thaw\n"
	       "  --json            as one JSON object\n");
}

static int tune_wrong(const char *what, const char *arg)
{
	diag_error("%s%s; usage: " TUNE_USAGE, what, arg);
	return CMD_USAGE;
}

static int tune_take_set(struct tune_args *a, const char *text)
{
	json_t *set = json_object_get(a->request, "set");
	const char *equals = strchr(text, '=');
	uint64_t value;
	char name[32];

	if (!equals || (size_t)(equals - text) >= sizeof(name) ||
	    units_parse_u64(equals + 1, 0, UINT32_MAX, &value) != 0)
		return tune_wrong("--set wants KNOB=VALUE, not ", text);
	snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	if (!set) {
		set = json_object();
		json_object_set_new(a->request, "set", set);
	}
	if (json_object_set_new(set, name, json_integer((json_int_t)value)) != 0)
		return tune_wrong("no knob has such a name: ", text);
	return 0;
}

/* The daemon has another working directory. */
static int tune_take_record(struct tune_args *a, const char *file)
{
	char dir[PATH_MAX], path[2 * PATH_MAX];

	if (strcmp(file, "off") == 0) {
		json_object_set_new(a->request, "record", json_string(""));
		return 0;
	}
	if (file[0] == '/')
		snprintf(path, sizeof(path), "%s", file);
	else if (getcwd(dir, sizeof(dir)))
		snprintf(path, sizeof(path), "%s/%s", dir, file);
	else
		return tune_wrong("cannot name the directory of ", file);
	if (json_object_set_new(a->request, "record", json_string(path)) != 0)
		return tune_wrong("the name of a recording must be UTF-8, not ", path);
	return 0;
}

static bool is_number(const char *text)
{
	return text && *text && text[strspn(text, "0123456789")] == '\0';
}

/* One option; *i moves over its value. */
static int tune_take_option(struct tune_args *a, int argc, char **argv, int *i)
{
	const char *arg = argv[*i], *next = *i + 1 < argc ? argv[*i + 1] : NULL;

	if (strcmp(arg, "--json") == 0) {
		a->as_json = true;
	} else if (strcmp(arg, "--freeze") == 0 || strcmp(arg, "--thaw") == 0) {
		json_object_set_new(a->request, "freeze", json_boolean(arg[2] == 'f'));
	} else if (strncmp(arg, "--explain=", 10) == 0) {
		if (!is_number(arg + 10))
			return tune_wrong("--explain wants a number, not ", arg + 10);
		a->explain = true;
		json_object_set_new(a->request, "explain",
				    json_integer(strtol(arg + 10, NULL, 10)));
	} else if (strcmp(arg, "--explain") == 0) {
		a->explain = true;
		json_object_set_new(a->request, "explain",
				    json_integer(is_number(next) ? strtol(argv[++*i], NULL, 10) :
								   TUNE_EXPLAIN_DEFAULT));
	} else if (!next) {
		return tune_wrong("unknown option, or its value is missing: ", arg);
	} else if (strcmp(arg, "--set") == 0) {
		return tune_take_set(a, argv[++*i]);
	} else if (strcmp(arg, "--record") == 0) {
		return tune_take_record(a, argv[++*i]);
	} else if (strcmp(arg, "--replay") == 0) {
		a->replay = argv[++*i];
	} else {
		return tune_wrong("unknown option ", arg);
	}
	return 0;
}

static int tune_ask(const struct tune_args *a)
{
	json_t *reply = NULL;
	const json_t *list, *d;
	const char *error;
	char why[512];
	size_t i;
	int err = control_call(a->where, a->request, TUNE_SECONDS, &reply, NULL, why, sizeof(why));

	if (err) {
		diag_error("%s", why);
		return CMD_FAILED;
	}
	error = json_string_value(json_object_get(reply, "error"));
	if (error) {
		diag_error("%s", error);
	} else if (a->as_json) {
		json_object_del(reply, "ok");
		json_dumpf(reply, stdout, JSON_INDENT(2));
		printf("\n");
	} else {
		cmd_tune_print(json_object_get(reply, "tuner"));
		list = json_object_get(reply, "decisions");
		json_array_foreach(list, i, d)
			cmd_tune_print_decision(d);
	}
	err = error ? CMD_FAILED : CMD_OK;
	json_decref(reply);
	return err;
}

struct tune_replay {
	const struct tune_args *args;
	unsigned long long windows;
};

static void replay_window(void *ctx, const struct tuner_decision *d)
{
	struct tune_replay *r = ctx;

	r->windows++;
	if (r->args->explain && !r->args->as_json)
		tuner_explain_print(stdout, d);
}

static int tune_replay(const struct tune_args *a)
{
	struct tune_replay r = { .args = a };
	uint64_t at = 0;
	FILE *in = fopen(a->replay, "re");
	int err;

	if (!in) {
		diag_error("cannot read %s: %s", a->replay, strerror(errno));
		return CMD_FAILED;
	}
	err = tuner_trace_replay(in, replay_window, &r, &at);
	fclose(in);
	if (err && err != -EILSEQ) {
		diag_error("%s: %s", a->replay,
			   err == -EINVAL ? "not a trace of kvfs tune --record, or a damaged one" :
			   err == -ESTALE ? "a trace of another version of kvfs" : strerror(-err));
		return CMD_FAILED;
	}
	if (a->as_json)
		printf("{\"windows\": %llu, \"same\": %s}\n", r.windows, err ? "false" : "true");
	else if (err)
		printf("window %llu: another decision than in the trace\n", (unsigned long long)at);
	else
		printf("%llu windows, each decision the same\n", r.windows);
	return err ? CMD_FAILED : CMD_OK;
}

static int tune_parse(struct tune_args *a, int argc, char **argv)
{
	int err = 0;

	for (int i = 1; i < argc && !err; i++) {
		if (argv[i][0] == '-' && argv[i][1])
			err = tune_take_option(a, argc, argv, &i);
		else if (a->where)
			err = tune_wrong("too many arguments: ", argv[i]);
		else
			a->where = argv[i];
	}
	if (err)
		return err;
	if (a->replay && (a->where || json_object_get(a->request, "set") ||
			  json_object_get(a->request, "freeze") ||
			  json_object_get(a->request, "record")))
		return tune_wrong("--replay needs no mount and gives no orders", "");
	if (!a->replay && !a->where)
		return tune_wrong("WHERE is missing", "");
	return 0;
}

int cmd_tune(int argc, char **argv)
{
	struct tune_args a = { 0 };
	int code;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
			tune_help();
			return CMD_OK;
		}
	}
	a.request = json_pack("{s:s}", "cmd", "tune");
	if (!a.request) {
		diag_error("out of memory");
		return CMD_FAILED;
	}
	code = tune_parse(&a, argc, argv);
	if (!code)
		code = a.replay ? tune_replay(&a) : tune_ask(&a);
	json_decref(a.request);
	return code;
}
