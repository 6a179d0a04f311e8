/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring's entry: the request in it becomes one piece of memory for libfuse, the answer of libfuse
 * goes into it. Our own number of the entry takes the place of the request's, so that an answer
 * finds it. See fuse_ring.h.
 */
#include "fs/fuse/fuse_fallocate.h"
#include "fs/fuse/fuse_ring_internal.h"

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <unistd.h>


_Thread_local struct ring *ring_self;

static uint64_t ring_entry_unique(const struct ring_entry *e)
{
	return RING_UNIQUE | (uint64_t)e->ring->qid << 16 | (uint64_t)(e - e->ring->entries);
}

static struct ring_entry *ring_entry_find(struct fuse_rings *rings, uint64_t unique)
{
	uint64_t qid = (unique & ~RING_UNIQUE) >> 16, index = unique & 0xffff;

	return qid < rings->count && index < RING_ENTRIES ? &rings->rings[qid].entries[index]
							  : NULL;
}

void ring_entry_handle(struct ring_entry *e)
{
	struct fuse_in_header *in = (struct fuse_in_header *)e->headers->in_out;
	uint32_t payload = e->headers->payload_bytes;
	size_t fixed = in->len - sizeof(*in) - payload;
	struct fuse_buf buf = { .size = in->len };
	uint8_t *request = e->payload - fixed - sizeof(*in);

	/* the kernel's own figures: a request that contradicts itself is its bug, not a
	 * reason to crash */
	if (in->len < sizeof(*in) + payload || fixed > sizeof(e->headers->op_in)) {
		struct fuse_out_header out = { .len = sizeof(out),
					       .error = -EIO,
					       .unique = ring_entry_unique(e) };
		struct iovec iov = { &out, sizeof(out) };

		e->commit_id = e->headers->commit_id;
		ring_writev(-1, &iov, 1, e->ring->rings->fs);
		return;
	}
	e->commit_id = e->headers->commit_id;
	memcpy(request + sizeof(*in), e->headers->op_in, fixed);
	memcpy(request, in, sizeof(*in));
	((struct fuse_in_header *)request)->unique = ring_entry_unique(e);
	buf.mem = request;
	fs_metrics_begin(&e->ring->rings->fs->metrics, &buf, e->pushed_ns);
	e->pushed_ns = 0;
	fuse_session_process_buf(e->ring->rings->fs->se, &buf);
	/* another's entry may be the next request's already */
	if (ring_self == e->ring && (e->refused == RING_REFUSED || e->refused == RING_PUT_OFF))
		fs_metrics_again(&e->ring->rings->fs->metrics);
	else
		fs_metrics_end(&e->ring->rings->fs->metrics);
}

bool ring_entry_is_statfs(const struct ring_entry *e)
{
	return ((const struct fuse_in_header *)e->headers->in_out)->opcode == FUSE_STATFS;
}

static bool ring_entry_is_long(const struct ring_entry *e)
{
	struct fuse_fallocate_in in;

	memcpy(&in, e->headers->op_in, sizeof(in));
	return fs_fallocate_is_long(in.mode, in.length);
}

bool ring_entry_may_wait(const struct ring_entry *e)
{
	const struct fs *fs = e->ring->rings->fs;
	uint32_t opcode = ((const struct fuse_in_header *)e->headers->in_out)->opcode;

	if (!fs->commit)
		return false;
	if (opcode == FUSE_FALLOCATE && ring_entry_is_long(e))
		return true;
	if (commit_is_roomy(fs->commit))
		return false;
	switch (opcode) {
	case FUSE_STATFS:
	case FUSE_LOOKUP:
	case FUSE_GETATTR:
	case FUSE_READLINK:
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
	case FUSE_GETXATTR:
	case FUSE_LISTXATTR:
	case FUSE_LSEEK:
		return false;
	case FUSE_UNLINK: /* these may use the room kept for deletions, while there is some */
	case FUSE_RMDIR:
		return !commit_has_urgent_room(fs->commit);
	default:
		return true;
	}
}

void ring_entry_commit(struct ring_entry *e)
{
	struct ring *r = e->ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
	struct fuse_ring_cmd cmd = { .commit_id = e->commit_id, .qid = (uint16_t)r->qid };

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, r->rings->fd, NULL, 0, 0);
	memset((uint8_t *)sqe + FUSE_RING_CMD_OFF, 0, 128 - FUSE_RING_CMD_OFF);
	sqe->cmd_op = FUSE_RING_CMD_COMMIT_AND_FETCH;
	io_uring_sqe_set_data64(sqe, (uint64_t)(e - r->entries));
	memcpy((uint8_t *)sqe + FUSE_RING_CMD_OFF, &cmd, sizeof(cmd));
}

/* Leaves e to its ring's thread and wakes that. */
static void ring_entry_hand_over(struct ring_entry *e)
{
	struct ring *r = e->ring;
	uint64_t one = 1;

	e->next = atomic_load_explicit(&r->answered, memory_order_relaxed);
	/* release: the answer's bytes; its partner is the exchange in ring_take_answered() */
	while (!atomic_compare_exchange_weak_explicit(&r->answered, &e->next, e,
						      memory_order_release, memory_order_relaxed))
		;
	/* can't fail: an eventfd takes 2^64 - 2 wake-ups */
	if (!atomic_exchange(&r->woken, true) && write(r->wake_fd, &one, sizeof(one)) < 0)
		assert(errno == EAGAIN);
}

static ssize_t ring_entry_answer(struct ring_entry *e, const struct iovec *iov, int count)
{
	struct fuse_out_header out = *(const struct fuse_out_header *)iov[0].iov_base;
	size_t bytes = 0, room = e->ring->rings->payload_bytes;

	if (ring_self == e->ring && e->refused == RING_PUT_OFF)
		return out.len;
	if (out.error == -ENOSPC && ring_self == e->ring && e->refused == RING_REFUSE_ONCE) {
		e->refused = RING_REFUSED;
		return out.len;
	}
	out.unique = e->commit_id;
	for (int i = 1; i < count; i++) {
		/* the kernel asks for no more: never no answer */
		if (iov[i].iov_len > room - bytes) {
			out.error = -EIO;
			bytes = 0;
			break;
		}
		memcpy(e->payload + bytes, iov[i].iov_base, iov[i].iov_len);
		bytes += iov[i].iov_len;
	}
	memcpy(e->headers->in_out, &out, sizeof(out));
	e->headers->payload_bytes = (uint32_t)bytes;
	if (ring_self == e->ring)
		ring_entry_commit(e);
	else
		ring_entry_hand_over(e);
	return out.len;
}

/* The answer to INIT, on its way through libfuse, which does not know of rings. */
static void ring_patch_init(struct fuse_rings *rings, const struct iovec *iov)
{
	uint8_t *out = iov->iov_base;
	uint32_t flags, flags2;

	if (!rings->init_offers || iov->iov_len < sizeof(struct fuse_init_out))
		return;
	memcpy(&flags, out + FUSE_RING_INIT_FLAGS_OFF, sizeof(flags));
	memcpy(&flags2, out + FUSE_RING_INIT_OUT_FLAGS2_OFF, sizeof(flags2));
	flags |= FUSE_RING_INIT_EXT;
	flags2 |= FUSE_RING_INIT_FLAGS2;
	memcpy(out + FUSE_RING_INIT_FLAGS_OFF, &flags, sizeof(flags));
	memcpy(out + FUSE_RING_INIT_OUT_FLAGS2_OFF, &flags2, sizeof(flags2));
}

ssize_t ring_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	struct fuse_rings *rings = ((struct fs *)userdata)->rings;
	const struct fuse_out_header *out = iov[0].iov_base;
	bool init = out->unique && !rings->init_done;
	ssize_t len;

	if (out->unique & RING_UNIQUE) {
		struct ring_entry *e = ring_entry_find(rings, out->unique);

		assert(e);
		return ring_entry_answer(e, iov, count);
	}
	if (init && count > 1) {
		pthread_mutex_lock(&rings->lock);
		rings->promised = rings->init_offers && rings->order == RINGS_NEW;
		pthread_mutex_unlock(&rings->lock);
		if (rings->promised)
			ring_patch_init(rings, &iov[1]);
	}
	len = writev(fd, iov, count);
	if (init) {
		pthread_mutex_lock(&rings->lock);
		rings->init_done = true;
		pthread_cond_broadcast(&rings->changed);
		pthread_mutex_unlock(&rings->lock);
	}
	return len;
}
