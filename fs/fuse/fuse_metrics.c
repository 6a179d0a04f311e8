/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured of requests: see fuse_metrics.h. Any worker; a request's timing is its worker's
 * own. */
#include "fs/fuse/fuse_metrics.h"

#include "common/clock.h"

#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <string.h>

/* By the kernel's request number; kinds of one name are one series. 0: all others. */
static const struct {
	uint32_t opcode;
	const char *name;
} kinds[FS_METRICS_KINDS] = {
	{ 0, "other" },
	{ FUSE_LOOKUP, "lookup" },
	{ FUSE_FORGET, "forget" },
	{ FUSE_BATCH_FORGET, "forget" },
	{ FUSE_GETATTR, "getattr" },
	{ FUSE_SETATTR, "setattr" },
	{ FUSE_READLINK, "readlink" },
	{ FUSE_SYMLINK, "symlink" },
	{ FUSE_MKNOD, "mknod" },
	{ FUSE_MKDIR, "mkdir" },
	{ FUSE_UNLINK, "unlink" },
	{ FUSE_RMDIR, "rmdir" },
	{ FUSE_RENAME, "rename" },
	{ FUSE_RENAME2, "rename" },
	{ FUSE_LINK, "link" },
	{ FUSE_READ, "read" },
	{ FUSE_WRITE, "write" },
	{ FUSE_STATFS, "statfs" },
	{ FUSE_FSYNC, "fsync" },
	{ FUSE_SETXATTR, "setxattr" },
	{ FUSE_GETXATTR, "getxattr" },
	{ FUSE_LISTXATTR, "listxattr" },
	{ FUSE_REMOVEXATTR, "removexattr" },
	{ FUSE_READDIR, "readdir" },
	{ FUSE_READDIRPLUS, "readdirplus" },
	{ FUSE_FALLOCATE, "fallocate" },
	{ FUSE_COPY_FILE_RANGE, "copy_file_range" },
	{ FUSE_LSEEK, "lseek" },
};
#define OPCODES 64
#define DURATION "kvfs_operation_duration_seconds"

static uint8_t kind_of_opcode[OPCODES]; /* filled once, before any worker */

static const struct metrics_def duration_def = {
	.name = DURATION,
	.help = "From the worker's read of a request to its answer, by operation.",
	.kind = METRICS_HISTOGRAM,
	.ns = true,
	.first_bits = METRICS_NS_FIRST_BITS,
	.sub_bits = 1, /* as kvfs_stage_duration_seconds, whose stage fuse is the sum */
};
static const struct metrics_def total_def = {
	.name = "kvfs_operations_total",
	.help = "Requests answered, by operation.",
	.kind = METRICS_COUNTER,
};
static const struct metrics_def bytes_def = {
	.name = "kvfs_operation_bytes_total",
	.help = "Bytes of values read and written through the mount.",
	.kind = METRICS_COUNTER,
};
static const struct metrics_def failed_def = {
	.name = "kvfs_operations_timed_out_total",
	.help = "Requests that got EIO since they were not committed in time.",
	.kind = METRICS_COUNTER,
};
static const struct metrics_def in_flight_def = {
	.name = "kvfs_operations_in_flight",
	.help = "Requests read and not answered.",
	.kind = METRICS_GAUGE,
};
static const struct metrics_def commit_wait_def = {
	.name = "kvfs_commit_wait_seconds",
	.help = "From a change being made, its wait for log room included, to its answer after "
		"the commit (early_truncate: or before).",
	.kind = METRICS_HISTOGRAM,
	.ns = true,
	.first_bits = METRICS_NS_FIRST_BITS,
	.sub_bits = 1,
};
static const struct metrics_def record_bytes_def = {
	.name = "kvfs_record_bytes",
	.help = "Size of the records of changes, as in the log and on the wire.",
	.kind = METRICS_HISTOGRAM,
	.first_bits = 6,
};
static const struct metrics_def told_def = {
	.name = "kvfs_cache_invalidations_total",
	.help = "Inodes the kernel was told to look at again: view (a mirror's view changed), "
		"doubt (a change "
		"may yet commit after its EIO).",
	.kind = METRICS_COUNTER,
};

static _Thread_local struct {
	uint64_t began_ns, due_from_ns;
	uint8_t kind;
	bool deferred; /* an fs_op answers, and counts */
} request;

static void fs_metrics_collect(void *ctx)
{
	struct fs_metrics *fm = ctx;

	for (unsigned i = 0; i < FS_METRICS_KINDS; i++)
		metric_set(fm->total[i], metric_observed(fm->duration[i]));
}

void fs_metrics_init(struct fs_metrics *fm, struct metrics *m)
{
	for (unsigned i = 0; i < FS_METRICS_KINDS; i++) {
		if (kinds[i].opcode < OPCODES)
			kind_of_opcode[kinds[i].opcode] = (uint8_t)i;
		fm->total[i] = metrics_series(m, &total_def, "op", kinds[i].name, NULL);
	}
	for (unsigned i = 0; i < FS_METRICS_KINDS; i++)
		fm->duration[i] = metrics_series(m, &duration_def, "op", kinds[i].name, NULL);
	metric_sum_of(metrics_stage(m, "fuse"), DURATION);
	fm->read_bytes = metrics_series(m, &bytes_def, "op", "read", NULL);
	fm->write_bytes = metrics_series(m, &bytes_def, "op", "write", NULL);
	fm->failed = metrics_series(m, &failed_def, NULL);
	fm->in_flight = metrics_series(m, &in_flight_def, NULL);
	fm->commit_wait = metrics_series(m, &commit_wait_def, NULL);
	fm->record_bytes = metrics_series(m, &record_bytes_def, NULL);
	fm->view_told = metrics_series(m, &told_def, "reason", "view", NULL);
	fm->doubt_told = metrics_series(m, &told_def, "reason", "doubt", NULL);
	if (m)
		(void)metrics_add_collector(m, fs_metrics_collect,
					    fm); /* without: the totals stay 0 */
}

void fs_metrics_begin(struct fs_metrics *fm, const struct fuse_buf *buf, uint64_t came_ns)
{
	uint32_t opcode = ((const struct fuse_in_header *)buf->mem)->opcode;

	request.began_ns = request.due_from_ns = came_ns ? came_ns : clock_mono_ns();
	request.kind = opcode < OPCODES ? kind_of_opcode[opcode] : 0;
	request.deferred = false;
	metric_add(fm->in_flight, 1);
}

void fs_metrics_end(struct fs_metrics *fm)
{
	if (request.deferred)
		return;
	metric_observe(fm->duration[request.kind], clock_mono_ns() - request.began_ns);
	metric_add(fm->in_flight, (uint64_t)-1);
}

void fs_metrics_again(struct fs_metrics *fm)
{
	metric_add(fm->in_flight, (uint64_t)-1);
}

struct fs_timing fs_metrics_timing(bool is_request)
{
	return (struct fs_timing){
		.began_ns = request.began_ns,
		.due_from_ns = request.due_from_ns,
		.queued_ns = clock_mono_ns(),
		.kind = request.kind,
		.is_request = is_request,
	};
}

void fs_metrics_progress(void)
{
	request.due_from_ns = clock_mono_ns();
}

void fs_metrics_defer(void)
{
	request.deferred = true;
}

void fs_metrics_answered(struct fs_metrics *fm, const struct fs_timing *timing, const struct op *op,
			 int err)
{
	uint64_t now = clock_mono_ns();

	metric_observe(fm->duration[timing->kind], now - timing->began_ns);
	metric_add(fm->in_flight, (uint64_t)-1);
	if (err)
		metric_add(fm->failed, 1);
	if (err || !op->head_len)
		return;
	metric_observe(fm->commit_wait, now - timing->queued_ns);
	metric_observe(fm->record_bytes, (uint64_t)op->head_len + op->data_len);
	if (kinds[timing->kind].opcode == FUSE_WRITE)
		metric_add(fm->write_bytes, op->data_len);
}
