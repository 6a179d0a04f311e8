/* SPDX-License-Identifier: Apache-2.0 */
/* kvfs top: asks the daemon's metrics each interval and shows what changed. Needs no endpoint. */
#include "fs/cmd/cmd.h"

#include "common/clock.h"
#include "common/diag.h"
#include "fs/admin/control.h"
#include "fs/cmd/top.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define TOP_CALL_SECONDS 10
#define TOP_USAGE "usage: kvfs top [--once] [--json] [--interval SEC] WHERE"

struct top_args {
	const char *where;
	bool once, json;
	double interval_s;
};

static int top_ask(const char *where, json_t **ret_reply)
{
	json_t *request = json_pack("{s:s}", "cmd", "metrics");
	const char *error;
	char why[512];
	int err = control_call(where, request, TOP_CALL_SECONDS, ret_reply, NULL, why, sizeof(why));

	json_decref(request);
	if (err) {
		diag_error("%s", why);
		return err;
	}
	error = json_string_value(json_object_get(*ret_reply, "error"));
	if (!error)
		return 0;
	diag_error("%s", error);
	json_decref(*ret_reply);
	return -EIO;
}

/* Of standard output, one row left for the cursor. */
static struct top_screen top_screen_now(void)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 ||
	    size.ws_row < 3)
		return (struct top_screen){ 0, 0 };
	return (struct top_screen){ size.ws_row - 1U, size.ws_col ? size.ws_col : UINT_MAX };
}

static int top_show(const struct top_args *a, const json_t *before, const json_t *after)
{
	json_t *frame = top_frame(before, after);
	struct top_screen screen = top_screen_now();

	if (!frame) {
		diag_error("%s: the daemon's answer is not understood; is it of another version?",
			   a->where);
		return -EPROTO;
	}
	if (a->json) {
		json_dumpf(frame, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
		printf("\n");
	} else if (screen.rows && !a->once) {
		printf("\033[H"); /* home; each line clears its rest, and the end what is below */
		top_print(frame, stdout, screen);
		printf("\033[J");
	} else {
		top_print(frame, stdout, (struct top_screen){ 0, 0 });
		if (!a->once)
			printf("\n");
	}
	json_decref(frame);
	if (fflush(stdout) != 0)
		return -errno; /* main says why; a closed pipe has ended us by its signal */
	return 0;
}

static int top_run(const struct top_args *a)
{
	json_t *before = NULL, *after;
	int err = top_ask(a->where, &before);
	bool first = true;

	while (!err) {
		(void)poll(NULL, 0, (int)(a->interval_s * 1000));
		err = top_ask(a->where, &after);
		if (err)
			break;
		if (first && !a->json && !a->once && top_screen_now().rows)
			printf("\033[2J");
		first = false;
		err = top_show(a, before, after);
		json_decref(before);
		before = after;
		if (a->once)
			break;
	}
	json_decref(before);
	return err ? CMD_FAILED : CMD_OK;
}

static int top_parse(struct top_args *a, int argc, char **argv)
{
	char *end;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--once") == 0) {
			a->once = true;
		} else if (strcmp(argv[i], "--json") == 0) {
			a->json = true;
		} else if (strcmp(argv[i], "--interval") == 0 && i + 1 < argc) {
			a->interval_s = strtod(argv[++i], &end);
			if (*end || end == argv[i] ||
			    !(a->interval_s >= 0.1 && a->interval_s <= 3600)) {
				diag_error("top: --interval %s: seconds from 0.1 to 3600", argv[i]);
				return CMD_USAGE;
			}
		} else if (argv[i][0] == '-' || a->where) {
			a->where = NULL;
			break;
		} else {
			a->where = argv[i];
		}
	}
	if (a->where)
		return CMD_OK;
	diag_error(TOP_USAGE);
	return CMD_USAGE;
}

int cmd_top(int argc, char **argv)
{
	struct top_args a = { .interval_s = 1 };
	int code;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-h") != 0 && strcmp(argv[i], "--help") != 0)
			continue;
		printf(TOP_USAGE "\n\nShows what is served at WHERE, a volume or a mount point, "
				 "anew each interval.\n\n"
				 "  --once          one picture, of one interval\n"
				 "  --json          one object a line\n"
				 "  --interval SEC  0.1 to 3600 (1)\n");
		return CMD_OK;
	}
	code = top_parse(&a, argc, argv);
	return code ? code : top_run(&a);
}
