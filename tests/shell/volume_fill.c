/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test tool: puts records and checkpoints into a volume by the log's own functions, without a mount.
 *   volume_fill VOLUME STEP...   append:COUNT  ckpt:ITEMS  switch  hold
 * hold keeps the volume locked until standard input ends, after it has printed "held".
 */
#include "log/ckpt.h"
#include "log/oplog.h"
#include "log/volume.h"

#include "common/crc32c.h"
#include "common/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct fill {
	struct volume *volume;
	struct oplog *log;
	struct ckpt *ckpt;
	uint64_t next_lsn;
};

#define FILL_EPOCH 1
#define FILL_DATA_BYTES 1000

static int append_one(struct fill *f)
{
	static uint8_t data[FILL_DATA_BYTES];
	uint8_t head[RECORD_HEAD_MAX];
	struct record r = { .opcode = RECORD_WRITE, .ino = 2, .gen = 1, .timestamp_ns = 1,
			    .data = data, .data_len = sizeof(data) };
	size_t head_len = record_head_bytes(&r);
	struct iovec iov[2] = { { head, head_len }, { data, sizeof(data) } };
	int err;

	memset(data, (int)f->next_lsn, sizeof(data));
	record_encode_head(&r, head);
	record_seal(head, head_len, f->next_lsn, FILL_EPOCH, crc32c(0, data, sizeof(data)),
		    sizeof(data));
	err = oplog_append(f->log, iov, 2, f->next_lsn, 1, false);
	if (!err)
		f->next_lsn++;
	return err;
}

static int checkpoint(struct fill *f, uint64_t items)
{
	static uint8_t data[FILL_DATA_BYTES];
	struct iovec iov = { data, sizeof(data) };
	struct ckpt_writer *w = NULL;
	struct ckpt_info info;
	uint64_t seg;
	uint32_t bytes;
	int err = ckpt_begin(f->ckpt, f->next_lsn - 1, FILL_EPOCH, &w);

	for (uint64_t i = 0; i < items && !err; i++) {
		err = ckpt_writer_add(w, 1, &iov, 1, &seg, &bytes);
		if (err)
			ckpt_abort(w);
	}
	if (!err)
		err = ckpt_commit(w, 0, 2, &info);
	if (!err)
		oplog_covered(f->log, info.lsn);
	return err;
}

static int hold(void)
{
	char c;

	puts("held");
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	return 0;
}

static int do_step(struct fill *f, const char *step)
{
	uint64_t count = 0;
	int err = 0;

	if (strcmp(step, "switch") == 0)
		return oplog_switch(f->log, FILL_EPOCH);
	if (strcmp(step, "hold") == 0)
		return hold();
	if (strncmp(step, "ckpt:", 5) == 0)
		return units_parse_u64(step + 5, 0, 1000000, &count) ? -EINVAL : checkpoint(f, count);
	if (strncmp(step, "append:", 7) != 0 || units_parse_u64(step + 7, 0, 1000000, &count) != 0)
		return -EINVAL;
	for (uint64_t i = 0; i < count && !err; i++)
		err = append_one(f);
	return err;
}

static int open_all(struct fill *f)
{
	struct oplog_config cfg = { .node_id = f->volume->super.node_id,
				    .format_version = f->volume->super.format_version };
	struct oplog_range range;
	struct ckpt_info infos[2];
	const char *why = "";
	uint64_t lsn = 0;
	int err;

	memcpy(cfg.uuid, f->volume->super.uuid, sizeof(cfg.uuid));
	err = oplog_open(&logdev_pmemlog_ops, f->volume->dirfd, &cfg, &f->log, &range, &why);
	if (!err)
		err = ckpt_open(f->volume->dirfd, true, cfg.uuid, &f->ckpt);
	if (err)
		return err;
	if (ckpt_list(f->ckpt, infos) > 0)
		lsn = infos[0].lsn;
	if (range.first_lsn != 0 && range.last_lsn > lsn)
		lsn = range.last_lsn;
	f->next_lsn = lsn + 1;
	return oplog_start(f->log, f->next_lsn, FILL_EPOCH);
}

int main(int argc, char **argv)
{
	struct fill f = { 0 };
	const char *why = "";
	int err;

	if (argc < 2 || volume_open(argv[1], false, &f.volume, &why) != 0) {
		fprintf(stderr, "volume_fill: %s\n", argc < 2 ? "VOLUME STEP..." : why);
		return 1;
	}
	err = open_all(&f);
	for (int i = 2; i < argc && !err; i++)
		err = do_step(&f, argv[i]);
	if (err)
		fprintf(stderr, "volume_fill: %s\n", strerror(-err));
	oplog_close(f.log);
	ckpt_close(f.ckpt);
	volume_close(f.volume);
	return err ? 1 : 0;
}
