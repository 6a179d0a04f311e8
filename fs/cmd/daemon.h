/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_DAEMON_H
#define KVFS_FS_DAEMON_H
/*
 * Going to the background, before anything is opened or any thread is started: the command returns
 * only when the daemon serves, or has failed and said why on the terminal that both still share.
 * Main thread.
 */
#include <stdbool.h>

/* Runs run(arg) in a daemon (here when foreground) and returns the exit code of the command: 0 once
 * run has called daemon_ready(), else what run returned. The daemon itself exits with run's return
 * value and does not return. */
int daemon_launch(bool foreground, int (*run)(void *arg), void *arg);

/* True in a daemon whose command was killed before daemon_ready(): nobody waits for it. */
bool daemon_abandoned(void);

/* The daemon serves: lets the command return, leaves the terminal; messages go to the journal from
 * here on. */
void daemon_ready(void);

#endif
