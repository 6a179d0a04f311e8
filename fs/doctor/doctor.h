/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_DOCTOR_H
#define KVFS_FS_DOCTOR_H
/*
 * kvfs doctor: what a deployment needs of a machine, looked at one check after the other. Each
 * finding says what is, how good that is for kvfs, and the remedy.
 *
 * Facts come from /proc, /sys, /dev and /etc below a root: "" on a machine, a directory with a tree
 * of files in tests. What only a system call can tell (a device's operations, a ring that opens,
 * the clock's state) is asked of the running kernel, and so only with root "".
 *
 * One thread. Nothing is changed. A fact that can't be read is a finding, never an error.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum doctor_status {
	DOCTOR_OK,
	DOCTOR_WARN, /* works, slower or less safe than it could */
	DOCTOR_FAIL, /* something kvfs is asked for will not work */
	DOCTOR_NA,   /* not there, not needed, or can't be known */
};

struct doctor_finding {
	char check[32]; /* "rdma.port" */
	enum doctor_status status;
	char text[320];
	char remedy[320]; /* "" with DOCTOR_OK, mostly */
};

struct doctor {
	const char *root; /* "" or a directory */
	bool live;        /* root is this machine's own */
	struct doctor_finding *findings;
	size_t count, capacity;
	bool out_of_memory;
};

/* Looks at everything. 0 or -ENOMEM; d is filled as far as it came, doctor_free is due. */
int doctor_run(struct doctor *d, const char *root);
void doctor_free(struct doctor *d);

/* The worst status found; DOCTOR_NA counts as good. */
enum doctor_status doctor_worst(const struct doctor *d);
const char *doctor_status_name(enum doctor_status s); /* "ok", "warn", "fail", "n/a" */

void doctor_print(const struct doctor *d, FILE *out);
int doctor_print_json(const struct doctor *d, FILE *out); /* -ENOMEM, -EIO */

#endif
