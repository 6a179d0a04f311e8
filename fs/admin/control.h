/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_CONTROL_H
#define KVFS_FS_CONTROL_H
/*
 * The control socket VOLUME/control: one request line and reply lines, both JSON objects.
 *
 *   {"cmd":"status"}      → {"ok":true, …}  see status.c; "digest":true adds one of all that users
 *                                           can see but access times
 *   {"cmd":"metrics"}     → {"ok":true,"time_ns":…,"metrics":[…]}  see metrics_json.h; the time
 *                                                                  is monotonic
 *   {"cmd":"tune", "explain":N, "freeze":BOOL, "set":{KNOB:VALUE}, "record":"/FILE" or ""}
 *                         → {"ok":true,"tuner":{…},"decisions":[…]}  see control_tune.c
 *   {"cmd":"checkpoint"}  → {"ok":true,"lsn":…}   when it is durable
 *   {"cmd":"shutdown"}    → {"ok":true,"pid":…}   the mount is gone; checkpoint and exit follow; a
 *                                                 second line comes if that checkpoint failed
 *   anything refused      → {"ok":false,"error":"a sentence"}
 *
 * The peer must be root or the daemon's user. Server threads: "kv-control" accepts, "kv-ctl" serves
 * one connection.
 */
#include "fs/fuse/fuse_session.h"

#include <jansson.h>

#define CONTROL_LINE_MAX (1U << 20)

struct control;

/* fs may be NULL (a mirror without a view). -errno with why. */
int control_start(struct node *n, struct fs *fs, struct control **ret_c, char why[NODE_WHY_BYTES]);
/* Readable once a shutdown was accepted. */
int control_shutdown_fd(const struct control *c);
/* Waits for the connections being served; NULL is fine. Returns the connection that asked for the
 * shutdown, for control_farewell; -1: none did. */
int control_stop(struct control *c);
/* Last: error NULL, or why the end was not a good one. Takes fd; -1 is fine. */
void control_farewell(int fd, const char *error);

/* How the daemon that was asked to shut down ends. */
struct control_end {
	int pidfd; /* readable when it has; -1: not known */
	int fd;    /* the connection */
};

/* Client: sends request to the daemon of WHERE (volume or mount point) and gets its reply, refused
 * ones included. -errno with why: no such place, not running, no answer within the timeout. ret_end
 * may be NULL; else it is closed by control_end_close. Steals nothing: the caller keeps request. */
int control_call(const char *where, json_t *request, unsigned timeout_s, json_t **ret_reply,
		 struct control_end *ret_end, char *why, size_t why_cap);

/* Once it has ended: why that was not a good end, or NULL. A new object, {"error":…}. */
json_t *control_end_error(const struct control_end *end);
void control_end_close(struct control_end *end);

/* status.c: the reply to "status". */
json_t *status_json(struct node *n, struct fs *fs, bool with_digest);
json_t *status_metrics_json(struct node *n); /* the reply to "metrics" */

/* cmd_tune_print.c, for people: status's "tuner" as a line; one of its decisions. */
void cmd_tune_print(const json_t *tuner);
void cmd_tune_print_decision(const json_t *decision);

#endif
