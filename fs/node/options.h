/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_OPTIONS_H
#define KVFS_FS_OPTIONS_H
/*
 * The options of kvfs mount and kvfs mirror: one table, whatever the route (--NAME=VALUE, -o,
 * fstab, /etc/kvfs.conf, VOLUME/kvfs.conf). The later route in that list's reverse order wins; a
 * repeatable option given by a stronger route replaces the list of the weaker one. --help is
 * printed from the same table.
 *
 * Parsing happens before any thread is started. Errors are one sentence for the user.
 */
#include "replication/transport/addr.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_MIRRORS_MAX 16
#define OPTIONS_WHY_BYTES 512
#define OPTIONS_MEMORY_BYTES 256
#define OPTIONS_DEVICE_BYTES 80

enum options_switch { OPTIONS_ON, OPTIONS_OFF };
enum options_policy { OPTIONS_POLICY_XGBOOST, OPTIONS_POLICY_BANDIT, OPTIONS_POLICY_QLEARNING,
		      OPTIONS_POLICY_STATIC };
enum options_uring { OPTIONS_URING_AUTO, OPTIONS_URING_OFF };

enum options_too_few { OPTIONS_TOO_FEW_FAIL, OPTIONS_TOO_FEW_READONLY };

enum options_role { OPTIONS_MOUNT = 1, OPTIONS_MIRROR = 2 };

/* Routes, weakest first. */
enum options_source { OPTIONS_DEFAULT, OPTIONS_ETC, OPTIONS_VOLUME, OPTIONS_COMMAND };

struct options_addrs {
	struct addr list[OPTIONS_MIRRORS_MAX];
	unsigned count;
};

/* metrics=: where the endpoint listens. */
struct options_metrics {
	bool off, given;            /* given: exactly there, else the next free port */
	struct addr at;
};
#define OPTIONS_METRICS_HOST "127.0.0.1"
#define OPTIONS_METRICS_PORT 7480

struct options {
	enum options_role role;
	uint64_t arena_bytes;       /* 0: half of the machine's memory */
	uint64_t mr_cache_bytes;
	char memory[OPTIONS_MEMORY_BYTES]; /* "": host */
	uint64_t inodes_max;        /* 0: from the machine's memory */
	uint64_t ring_bytes;        /* mirror */
	unsigned protocol;          /* enum commit_protocol */
	unsigned transport;         /* enum addr_kind, for addresses without a prefix */
	unsigned min_mirrors;       /* OPTIONS_MAJORITY: what makes a majority of the nodes */
	unsigned timeout_s, connect_s;
	unsigned lanes, poll_us;    /* lanes: 0 until options_finish says how many are usual */
	bool lanes_default;         /* mount: it did */
	unsigned lanes_open;        /* mount; 0: what the tuner may want (primary.h) */
	unsigned uring;             /* enum options_uring */
	unsigned early_truncate;    /* mount; enum options_switch */
	unsigned too_few_mirrors;   /* mount; enum options_too_few */
	unsigned tuner;             /* enum options_switch */
	unsigned tuner_policy;      /* enum options_policy */
	unsigned ack_timeout;       /* verbs: exponent */
	char rdma_device[OPTIONS_DEVICE_BYTES]; /* verbs: NAME[:PORT[:GID]], empty: any */
	unsigned threads;           /* 0: as many as processors, at least 2, at most 16 */
	bool xattr, ro, noatime, nodiratime, allow_other, promote, force;
	struct options_addrs mirrors, listen;
	struct options_metrics metrics;
	char kernel[128];           /* flags for the mount itself: ",nosuid,noexec" */
	uint8_t source[40];         /* enum options_source that set each table entry */
};
#define OPTIONS_MAJORITY UINT32_MAX

void options_init(struct options *o, enum options_role role);

/* NAME or NAME=VALUE. -EINVAL with why filled: unknown, missing value, out of range. */
int options_set(struct options *o, const char *text, enum options_source source,
		char why[OPTIONS_WHY_BYTES]);

/* A comma-separated list as after -o; fstab's generic words are accepted and ignored. */
int options_set_list(struct options *o, const char *list, enum options_source source,
		     char why[OPTIONS_WHY_BYTES]);

/* key=value lines, '#' comments. A file that does not exist is fine. -EINVAL, and errors of open
 * and read, with why. */
int options_read_file(struct options *o, const char *path, enum options_source source,
		      char why[OPTIONS_WHY_BYTES]);

/* What only holds for all options together; fills min_mirrors, lanes and
 * poll_us where nothing was said. -EINVAL with why. */
int options_finish(struct options *o, char why[OPTIONS_WHY_BYTES]);

/* The table as --help shows it. */
void options_help(enum options_role role, FILE *out);

#endif
