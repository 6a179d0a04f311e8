/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test tool: puts records and checkpoints into a volume by the log's own functions, without a
 * mount.
 *   volume_fill VOLUME STEP...   append:COUNT  ckpt:FILES  badckpt:FILES  switch  hold
 * ckpt writes the image of a root directory with FILES files in it; badckpt one more name than
 * files. hold keeps the volume locked until standard input ends, after it has printed "held".
 */
#include "log/ckpt.h"
#include "log/image_format.h"
#include "log/oplog.h"
#include "log/volume.h"

#include "common/byteorder.h"
#include "common/crc32c.h"
#include "common/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
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

static int add_inode(struct ckpt_writer *w, uint64_t ino, uint32_t mode, uint32_t nlink,
		     uint64_t size)
{
	static uint8_t data[FILL_DATA_BYTES];
	struct image_inode_item d = { .zero = 0 };
	struct iovec iov[2] = { { &d, sizeof(d) }, { data, S_ISREG(mode) ? size : 0 } };
	uint64_t seg;
	uint32_t bytes;

	put_be64(&d.ino, ino);
	put_be64(&d.parent_ino, 1);
	put_be32(&d.mode, mode);
	put_be32(&d.nlink, nlink);
	put_be64(&d.size, size);
	put_be32(&d.inline_cap, (uint32_t)iov[1].iov_len);
	put_be32(&d.inline_len, (uint32_t)iov[1].iov_len);
	return ckpt_writer_add(w, IMAGE_ITEM_INODE, iov, 2, &seg, &bytes);
}

static int add_name(struct ckpt_writer *w, uint64_t ino)
{
	struct image_name_item d = { .len = 0 };
	char text[32];
	struct iovec iov[2] = { { &d, sizeof(d) }, { text, 0 } };
	uint64_t seg;
	uint32_t bytes;

	iov[1].iov_len = (size_t)snprintf(text, sizeof(text), "file%llu", (unsigned long long)ino);
	d.len = (uint8_t)iov[1].iov_len;
	put_be64(&d.parent_ino, 1);
	put_be64(&d.cookie, ino + 10);
	put_be64(&d.ino, ino);
	return ckpt_writer_add(w, IMAGE_ITEM_NAME, iov, 2, &seg, &bytes);
}

static int checkpoint(struct fill *f, uint64_t files, uint64_t names)
{
	struct ckpt_writer *w = NULL;
	struct ckpt_info info;
	uint64_t first_seg;
	int err = ckpt_begin(f->ckpt, f->next_lsn - 1, FILL_EPOCH, &w);

	if (err)
		return err;
	first_seg = ckpt_writer_seg(w); /* whole by itself: nothing of the one before counts */
	err = add_inode(w, 1, S_IFDIR | 0755, 2, names + 100);
	for (uint64_t i = 0; i < files && !err; i++)
		err = add_inode(w, i + 2, S_IFREG | 0644, 1, FILL_DATA_BYTES);
	for (uint64_t i = 0; i < names && !err; i++)
		err = add_name(w, i + 2);
	if (err) {
		ckpt_abort(w);
		return err;
	}
	err = ckpt_commit(w, first_seg, names + 2, &info);
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
		return units_parse_u64(step + 5, 0, 1000000, &count) ? -EINVAL :
		       checkpoint(f, count, count);
	if (strncmp(step, "badckpt:", 8) == 0)
		return units_parse_u64(step + 8, 0, 1000000, &count) ? -EINVAL :
		       checkpoint(f, count, count + 1);
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
