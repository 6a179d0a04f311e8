/* SPDX-License-Identifier: Apache-2.0 */
/* See ckpt_io.h. A slot is one buffer and, while it is in flight, the write it is for. */
#include "log/ckpt_io.h"

#include "log/ckpt_format.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Seven buffers stay below Debian's default memlock limit of 8 MiB. */
#define IO_SLOTS 7
#define IO_AREA_BYTES ((size_t)IO_SLOTS * CKPT_BLOCK_BYTES_MAX)
/* Space is reserved ahead in such steps, so that direct writes do not each extend the file. */
#define IO_RESERVE_BYTES (16ULL << 20)

struct ckpt_io_file {
	int fd;
	bool direct;
	unsigned int inflight;
	uint64_t bytes;    /* appended so far */
	uint64_t reserved; /* the file's length as reserved, 0: not */
	bool no_reserve;   /* the filesystem can't, or is full */
};

struct io_slot {
	struct ckpt_io_file *file; /* in flight when not NULL */
	uint32_t len;
	uint64_t off;
};

struct ckpt_io {
	const struct ckpt_hooks *hooks;
	struct io_uring ring;
	bool uring, registered, direct;
	int err; /* the first, sticks */
	uint8_t *area;
	struct io_slot slots[IO_SLOTS];
	unsigned int free_slots[IO_SLOTS], free_count;
	unsigned int inflight;
};

static uint8_t *slot_buf(struct ckpt_io *io, unsigned int slot)
{
	return io->area + (size_t)slot * CKPT_BLOCK_BYTES_MAX;
}

static int io_fail(struct ckpt_io *io, int err)
{
	if (err && !io->err)
		io->err = err;
	return io->err;
}

static void ring_setup(struct ckpt_io *io)
{
	struct iovec iov[IO_SLOTS];

	if (io->hooks->no_uring || io_uring_queue_init(IO_SLOTS + 1, &io->ring, 0) != 0)
		return;
	io->uring = true;
	if (io->hooks->no_register)
		return;
	for (unsigned int i = 0; i < IO_SLOTS; i++)
		iov[i] = (struct iovec){ slot_buf(io, i), CKPT_BLOCK_BYTES_MAX };
	io->registered = io_uring_register_buffers(&io->ring, iov, IO_SLOTS) == 0;
}

int ckpt_io_create(const struct ckpt_hooks *hooks, struct ckpt_io **ret_io)
{
	struct ckpt_io *io = calloc(1, sizeof(*io));

	if (!io)
		return -ENOMEM;
	io->hooks = hooks;
	/* Pages of its own: a write that outlives a broken ring can't see another owner's bytes. */
	io->area = mmap(NULL, IO_AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
	if (io->area == MAP_FAILED) {
		free(io);
		return -ENOMEM;
	}
	(void)madvise(io->area, IO_AREA_BYTES, MADV_HUGEPAGE);
	for (unsigned int i = 0; i < IO_SLOTS; i++)
		io->free_slots[io->free_count++] = IO_SLOTS - 1 - i;
	ring_setup(io);
	*ret_io = io;
	return 0;
}

bool ckpt_io_is_uring(const struct ckpt_io *io)
{
	return io->uring;
}

bool ckpt_io_is_direct(const struct ckpt_io *io)
{
	return io->direct;
}

/* The filesystem took O_DIRECT at open but not in a write. */
static int file_drop_direct(struct ckpt_io *io, struct ckpt_io_file *f)
{
	int flags = fcntl(f->fd, F_GETFL);

	if (flags < 0 || fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) != 0)
		return -errno;
	f->direct = io->direct = false;
	return 0;
}

/* The plain way, also for what the asynchronous one left undone; writes the whole range again. */
static int write_sync(struct ckpt_io *io, struct ckpt_io_file *f, const uint8_t *buf, size_t len,
		      uint64_t off)
{
	const struct ckpt_hooks *h = io->hooks;
	int err = h->ops->write(h->ops_ctx, f->fd, buf, len, (off_t)off);

	if (err != -EINVAL || !f->direct)
		return err;
	err = file_drop_direct(io, f);
	return err ? err : h->ops->write(h->ops_ctx, f->fd, buf, len, (off_t)off);
}

/* A short write says only that there is an error ahead: writing again finds which. */
static bool is_retryable(int res)
{
	return res >= 0 || res == -EINVAL || res == -EAGAIN || res == -EINTR || res == -EOPNOTSUPP;
}

static int reap_one(struct ckpt_io *io)
{
	const struct ckpt_hooks *h = io->hooks;
	struct io_uring_cqe *cqe;
	struct io_slot *s;
	unsigned int slot;
	int res;

	do {
		res = io_uring_wait_cqe(&io->ring, &cqe);
	} while (res == -EINTR);
	if (res < 0)
		return io_fail(io, res);
	slot = (unsigned int)io_uring_cqe_get_data64(cqe);
	res = cqe->res;
	io_uring_cqe_seen(&io->ring, cqe);
	assert(slot < IO_SLOTS && io->slots[slot].file && io->inflight > 0);
	s = &io->slots[slot];
	if (h->ops->wrote)
		res = h->ops->wrote(h->ops_ctx, s->file->fd, s->len, (off_t)s->off, res);
	io->inflight--;
	s->file->inflight--;
	if (res < 0 && !is_retryable(res))
		io_fail(io, res);
	else if (res != (int)s->len && !io->err)
		io_fail(io, write_sync(io, s->file, slot_buf(io, slot), s->len, s->off));
	s->file = NULL;
	io->free_slots[io->free_count++] = slot;
	return 0;
}

void ckpt_io_destroy(struct ckpt_io *io)
{
	if (!io)
		return;
	while (io->inflight > 0 && reap_one(io) == 0)
		;
	if (io->uring)
		io_uring_queue_exit(&io->ring);
	munmap(io->area, IO_AREA_BYTES);
	free(io);
}

int ckpt_io_buffer_get(struct ckpt_io *io, uint8_t **ret_buf)
{
	while (io->free_count == 0 && io->inflight > 0 && !io->err)
		reap_one(io);
	if (io->err)
		return io->err;
	assert(io->free_count > 0);
	*ret_buf = slot_buf(io, io->free_slots[--io->free_count]);
	return 0;
}

int ckpt_io_file_open(struct ckpt_io *io, int dirfd, const char *name, struct ckpt_io_file **ret_f)
{
	const struct ckpt_hooks *h = io->hooks;
	int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	struct ckpt_io_file *f = calloc(1, sizeof(*f));

	if (!f)
		return io_fail(io, -ENOMEM);
	f->direct = !h->no_direct;
	f->fd = h->ops->open(h->ops_ctx, dirfd, name, flags | (f->direct ? O_DIRECT : 0), 0600);
	if (f->fd == -EINVAL && f->direct) {
		/* The name may have been made before the flag was refused. */
		unlinkat(dirfd, name, 0);
		f->direct = false;
		f->fd = h->ops->open(h->ops_ctx, dirfd, name, flags, 0600);
	}
	if (f->fd < 0) {
		int err = f->fd;

		free(f);
		return io_fail(io, err);
	}
	io->direct = f->direct;
	*ret_f = f;
	return 0;
}

static void file_reserve(struct ckpt_io_file *f, size_t len)
{
	uint64_t end = f->bytes + len;

	/* A short block is a checkpoint's last. Page-cached files gain nothing, and
	 * tmpfs would fill. */
	if (!f->direct || f->no_reserve || len < CKPT_BLOCK_BYTES_MAX / 2 || end <= f->reserved)
		return;
	if (fallocate(f->fd, 0, (off_t)f->bytes, (off_t)IO_RESERVE_BYTES) == 0)
		f->reserved = f->bytes + IO_RESERVE_BYTES;
	else
		f->no_reserve = true; /* the writes will say if it was for lack of room */
}

static int ring_submit(struct ckpt_io *io)
{
	for (;;) {
		int n = io_uring_submit(&io->ring);

		if (n > 0)
			return 0;
		if (n < 0 && n != -EINTR && n != -EAGAIN && n != -EBUSY)
			return n;
		if (n != -EINTR && (io->inflight == 0 || reap_one(io) != 0))
			return -EAGAIN;
	}
}

static int write_async(struct ckpt_io *io, struct ckpt_io_file *f, unsigned int slot, size_t len)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);
	uint8_t *buf = slot_buf(io, slot);
	int err;

	assert(sqe); /* more entries than buffers, each submitted at once */
	if (io->registered)
		io_uring_prep_write_fixed(sqe, f->fd, buf, (unsigned int)len, f->bytes, (int)slot);
	else
		io_uring_prep_write(sqe, f->fd, buf, (unsigned int)len, f->bytes);
	io_uring_sqe_set_data64(sqe, slot);
	err = ring_submit(io);
	if (err)
		return err;
	io->slots[slot] = (struct io_slot){ f, (uint32_t)len, f->bytes };
	io->inflight++;
	f->inflight++;
	return 0;
}

int ckpt_io_write(struct ckpt_io *io, struct ckpt_io_file *f, uint8_t *buf, size_t len)
{
	unsigned int slot = (unsigned int)((size_t)(buf - io->area) / CKPT_BLOCK_BYTES_MAX);
	int err;

	assert(len % CKPT_PAGE_BYTES == 0 && len <= CKPT_BLOCK_BYTES_MAX && slot < IO_SLOTS);
	if (io->err)
		return io->err;
	file_reserve(f, len);
	if (io->uring) {
		err = write_async(io, f, slot, len);
	} else {
		err = write_sync(io, f, buf, len, f->bytes);
		io->free_slots[io->free_count++] = slot;
	}
	f->bytes += len;
	return io_fail(io, err);
}

void ckpt_io_file_start_sync(struct ckpt_io_file *f)
{
	if (!f->direct)
		(void)sync_file_range(f->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
}

static void file_wait(struct ckpt_io *io, struct ckpt_io_file *f)
{
	while (f->inflight > 0 && reap_one(io) == 0)
		;
}

int ckpt_io_file_finish(struct ckpt_io *io, struct ckpt_io_file *f)
{
	const struct ckpt_hooks *h = io->hooks;
	int err;

	file_wait(io, f);
	err = io->err;
	if (!err && f->reserved > f->bytes)
		err = h->ops->truncate(h->ops_ctx, f->fd, (off_t)f->bytes);
	if (!err)
		err = h->ops->fsync(h->ops_ctx, f->fd);
	if (close(f->fd) != 0 && !err)
		err = -errno;
	free(f);
	return io_fail(io, err);
}

void ckpt_io_file_discard(struct ckpt_io *io, struct ckpt_io_file *f)
{
	if (!f)
		return;
	file_wait(io, f);
	close(f->fd);
	free(f);
}
