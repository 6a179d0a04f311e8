/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_COMMON_EXIT_CODE_H
#define KVFS_COMMON_EXIT_CODE_H
/* What kvfs and its sub-commands exit with. */

enum cmd_exit {
	CMD_OK = 0,
	CMD_FAILED = 1, /* one line on stderr said what and why */
	CMD_USAGE = 2,  /* the command line was wrong */
};

#endif
