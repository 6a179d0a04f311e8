/* SPDX-License-Identifier: Apache-2.0 */
/* getopt_long and --help from one table: see cli.h. */
#include "mkfs/cli.h"

#include "common/diag.h"
#include "common/io.h"

#include <assert.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

static void build_tables(const struct cli *cli, char *letters, struct option *longs)
{
	const struct cli_option *o;
	size_t n = 0;

	*letters++ = ':'; /* we print the messages */
	for (o = cli->options; o->code != 0; o++) {
		assert(n < CLI_OPTIONS_MAX);
		if (o->code < 256) {
			*letters++ = (char)o->code;
			if (o->arg)
				*letters++ = ':';
		}
		if (o->name)
			longs[n++] = (struct option){ o->name,
						      o->arg ? required_argument : no_argument,
						      NULL, o->code };
	}
	*letters = '\0';
	longs[n] = (struct option){ 0 };
}

int cli_next(const struct cli *cli, int argc, char **argv)
{
	char letters[2 * CLI_OPTIONS_MAX + 2];
	struct option longs[CLI_OPTIONS_MAX + 1];
	int at = optind > 0 ? optind : 1;
	int code;

	build_tables(cli, letters, longs);
	code = getopt_long(argc, argv, letters, longs, NULL);
	if (code == ':') {
		diag_error("option '%s' needs an argument; see %s --help", argv[optind - 1],
			   cli->program);
		return '?';
	}
	if (code == '?') {
		if (optopt > 0 && optopt < 256 && strncmp(argv[at], "--", 2) != 0)
			diag_error("unknown option '-%c'; see %s --help", optopt, cli->program);
		else
			diag_error("unknown or wrongly used option '%s'; see %s --help",
				   argv[optind - 1], cli->program);
	}
	return code;
}

void cli_print_help(const struct cli *cli)
{
	const struct cli_option *o;

	printf("Usage: %s %s\n%s\n\n", cli->program, cli->synopsis, cli->purpose);
	for (o = cli->options; o->code != 0; o++) {
		char left[48];
		char letter[8] = "    ";

		if (o->code < 256)
			snprintf(letter, sizeof(letter), "-%c%s", o->code, o->name ? ", " : "");
		snprintf(left, sizeof(left), "%s%s%s%s%s", letter, o->name ? "--" : "",
			 o->name ? o->name : "", o->arg ? " " : "", o->arg ? o->arg : "");
		printf("  %-24s %s\n", left, o->help);
	}
	printf("\n%s\n", cli->footer);
}

bool cli_output_arrived(void)
{
	int err = io_flush_stdout();

	if (err)
		diag_error("cannot write the output: %s", strerror(-err));
	return err == 0;
}
