/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_CMD_H
#define KVFS_FS_CMD_H
/* The kvfs program's sub-commands. Each gets its own argv (argv[0] is its name) and returns
 * an exit code. */
#include "common/exit_code.h"

int cmd_bench(int argc, char **argv);
int cmd_checkpoint(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_mirror(int argc, char **argv);
int cmd_mount(int argc, char **argv);
int cmd_mount_helper(int argc, char **argv); /* as mount.kvfs, called by mount(8) */
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_umount(int argc, char **argv);

#endif
