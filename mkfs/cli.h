/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_MKFS_CLI_H
#define KVFS_MKFS_CLI_H
/*
 * Command lines from one table: getopt_long's arrays and --help come from it, and a test compares
 * it with the man page. Single thread.
 */
#include <stdbool.h>

struct cli_option {
	int code;         /* the letter, or a number above 255 where there is only a long name */
	const char *name; /* long name, NULL when there is only the letter */
	const char *arg;  /* name of its argument, NULL when it takes none */
	const char *help; /* one line */
};

#define CLI_OPTIONS_MAX 16

struct cli {
	const char *program;
	const char *synopsis; /* "[-f] ... VOLUME" */
	const char *purpose;  /* one line */
	const struct cli_option *options; /* ends with code 0 */
	const char *footer;   /* exit codes, man page */
};

/* The next option's code, -1 at the end, '?' after a message about a wrong one. As getopt_long. */
int cli_next(const struct cli *cli, int argc, char **argv);

void cli_print_help(const struct cli *cli);

/* Last: whether what was printed has arrived; if not, after a message. */
bool cli_output_arrived(void);
#endif
