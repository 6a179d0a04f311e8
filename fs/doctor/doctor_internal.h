/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVFS_FS_DOCTOR_INTERNAL_H
#define KVFS_FS_DOCTOR_INTERNAL_H
/* What the checks of kvfs doctor are written with. One thread, as doctor.h says. */
#include "fs/doctor/doctor.h"

/* Adds a finding; remedy "" for none. */
void doctor_say(struct doctor *d, const char *check, enum doctor_status status, const char *remedy,
		const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#define DOCTOR_NAME_BYTES 64
#define DOCTOR_NAMES_MAX 128
struct doctor_names {
	char name[DOCTOR_NAMES_MAX][DOCTOR_NAME_BYTES];
	size_t count;
};

/* All paths are below root, and given as to printf. */

/* The file's text (at most cap - 1 bytes) without blanks at its end. -errno. */
int doctor_read(const struct doctor *d, char *out, size_t cap, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A number at the file's beginning, also a negative one or "0x..". -errno, -EINVAL. */
int doctor_read_i64(const struct doctor *d, int64_t *ret_value, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool doctor_has(const struct doctor *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The directory's entries that begin with prefix, sorted; none when there is no such directory. */
void doctor_list(const struct doctor *d, struct doctor_names *ret_names, const char *prefix,
		 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* The number behind "KEY" at the beginning of a line, as /proc/meminfo has it. -ENOENT. */
int doctor_line_u64(const struct doctor *d, const char *path, const char *key, uint64_t *ret_value);

/* NUMA node of a device directory, -1 when it has none. */
int doctor_node_of(const struct doctor *d, const char *device_dir);
bool doctor_has_rdma(const struct doctor *d);

/* What a device's verbs say it can do; doctor_verbs.c asks, doctor_verbs_judge weighs. */
struct doctor_verbs {
	char device[DOCTOR_NAME_BYTES];
	int open_error;                /* -errno: nothing else is known then */
	bool rc, uc;                   /* queue pairs of these types can be made, RC a lane's */
	bool write_imm_inline;         /* an RC queue pair takes 64 bytes inline */
	int register_error, dmabuf_error; /* -errno of registering memory; dmabuf: 0 supported */
	bool odp;
	int max_qp, max_qp_wr, max_cqe, max_mr;
	uint64_t max_mr_bytes;
};
void doctor_verbs_judge(struct doctor *d, const struct doctor_verbs *v);

/* The checks, in the order they are shown. */
void doctor_check_kernel(struct doctor *d);
void doctor_check_fuse(struct doctor *d);
void doctor_check_rdma(struct doctor *d);
void doctor_check_verbs(struct doctor *d);
void doctor_check_memory(struct doctor *d);
void doctor_check_numa(struct doctor *d);
void doctor_check_pmem(struct doctor *d);
void doctor_check_cpu(struct doctor *d);
void doctor_check_irq(struct doctor *d);
void doctor_check_clock(struct doctor *d);

#endif
